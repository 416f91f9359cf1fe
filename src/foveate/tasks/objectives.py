"""Training objectives: cross-entropy, R-Drop, distillation, REINFORCE, regularisers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable
from foveate.data.batches import sorted_batches
from foveate.errors import UserError
from foveate.models.encoder_decoder import EncoderDecoder, Memory
from foveate.models.language_model import LanguageModel
from foveate.models.pointer import PointerGenerator
from foveate.native.layers import definer
from foveate.nn.attention import BaseAttention, Tap
from foveate.nn.context import State
from foveate.nn.linear import linear, single
from foveate.nn.loss import Product, linear_cross_entropy, linear_divergence, linear_taught
from foveate.nn.normalizers import HardChoice
from foveate.tasks.base import DecoderBatch, Loss

Choose = Literal["greedy", "sample"]


@dataclass(frozen=True)
class Predictions:
    """What a model takes to follow what it reads: tokens (B, T), or rows of a series (B, T, C).

    ``next`` reads further places (B, k, …) behind those that it has read and gives what follows the
    last, (B, …). ``each`` reads (B, T, …) at once and gives what follows every place; None where a
    model reads step by step. The first ``prompt`` places, of all or of each row (B, 1), are not the
    model's to say.
    """

    next: Callable[[Tensor, Choose], Tensor]
    each: Callable[[Tensor, Choose], Tensor] | None = None
    prompt: int | Int[Tensor, "B 1"] = 1

    def fixed(self, gold: Tensor) -> Bool[Tensor, "B T"]:
        """True at the places of the prompt."""
        places = torch.arange(gold.shape[1], device=gold.device)
        return (places < self.prompt).expand(gold.shape[:2])


class TeacherForcing(Configurable, ABC):
    """Chooses what is read where ``gold`` (B, T, …) is the truth behind its start.

    One choice for all that write: decoders of tokens, and forecasters that read their own rows. The
    targets of the loss stay the true ones. What is read is data: the gradient flows through what
    the model makes of it, never into the outputs that it repeats (as in Bengio et al., 2015).
    """

    class Config(BaseConfig, family="teacher_forcing"):
        """Which choice."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def read(self, own: Predictions, gold: Tensor, step: int) -> Tensor:
        """What is read, shaped as ``gold``, at a step of training, counted from 1."""


class Always(TeacherForcing, kind="always"):
    """The true target at every place (Williams & Zipser, 1989)."""

    def read(self, own: Predictions, gold: Tensor, step: int) -> Tensor:
        return gold


class OwnOutput(TeacherForcing, kind="own"):
    """The model's own greedy output at every place after the prompt: what it meets in use."""

    def read(self, own: Predictions, gold: Tensor, step: int) -> Tensor:
        return step_by_step(own, gold, own.fixed(gold), "greedy")


class SamplingSchedule(Configurable, ABC):
    """ε(i), the probability that the true token is read at step i."""

    class Config(BaseConfig, family="sampling_schedule"):
        """How ε falls."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def epsilon(self, step: int) -> float:
        """ε in [0, 1]."""


class LinearDecay(SamplingSchedule):
    """ε(i) = max(ε_min, k − c i)."""

    class Config(SamplingSchedule.Config, kind="linear"):
        """``start`` is k, ``slope`` c a step, ``floor`` ε_min."""

        start: float = Field(1.0, ge=0, le=1)  # probability of the reference at the first step
        slope: float = Field(1e-4, ge=0)  # by which it falls each step
        floor: float = Field(0.5, ge=0, le=1)  # below which it does not fall

    config: Config

    def epsilon(self, step: int) -> float:
        return max(self.config.floor, self.config.start - self.config.slope * step)


class ExponentialDecay(SamplingSchedule):
    """ε(i) = kⁱ, k < 1."""

    class Config(SamplingSchedule.Config, kind="exponential"):
        """``base`` is k."""

        base: float = Field(0.9999, gt=0, lt=1)
        """The probability of the reference at step t is base^t."""

    config: Config

    def epsilon(self, step: int) -> float:
        return float(self.config.base**step)


class InverseSigmoidDecay(SamplingSchedule):
    """ε(i) = k / (k + exp(i / k)), k ≥ 1."""

    class Config(SamplingSchedule.Config, kind="inverse_sigmoid"):
        """``rate`` is k: ε is 1/2 at step k log k."""

        rate: float = Field(1000.0, ge=1)  # k in k / (k + exp(t / k)); a larger one decays later

    config: Config

    def epsilon(self, step: int) -> float:
        k = self.config.rate
        return k / (k + math.exp(min(step / k, 700.0)))


class Scheduled(TeacherForcing):
    """Scheduled sampling: each place read is the true one with probability ε(i) (Bengio, 2015).

    A recurrent model goes step by step and reads its own last output elsewhere. A decoder that
    reads all places at once says what it would predict from the true target, and that is mixed
    with the target for a second pass (Mihaylova & Martins, 2019). Choices carry no gradient.
    """

    class Config(TeacherForcing.Config, kind="scheduled"):
        """``choose`` the most probable token, or draw one from the model's distribution."""

        schedule: SamplingSchedule.Config = InverseSigmoidDecay.Config()
        """How the probability of the reference falls."""
        choose: Choose = "greedy"  # whether the model's own token is its likeliest, or drawn

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.schedule: SamplingSchedule = config.schedule.build()

    def read(self, own: Predictions, gold: Tensor, step: int) -> Tensor:
        epsilon = self.schedule.epsilon(step)
        if epsilon >= 1:  # no draws: the dropout masks that follow are those of teacher forcing
            return gold
        keep = torch.rand(gold.shape[:2], device=gold.device) < epsilon
        mix = step_by_step if own.each is None else second_pass
        return mix(own, gold, keep | own.fixed(gold), self.config.choose)


@torch.no_grad()
def step_by_step(
    own: Predictions, gold: Tensor, keep: Bool[Tensor, "B T"], choose: Choose
) -> Tensor:
    """The truth where ``keep`` is true, else what the model says after what it has read."""
    prompt = int(torch.as_tensor(own.prompt).min())
    read = [gold[:, :prompt]]
    for t in range(prompt, gold.shape[1]):
        read.append(_where(keep[:, t], gold[:, t], own.next(read[-1], choose))[:, None])
    return torch.cat(read, dim=1)


@torch.no_grad()
def second_pass(
    own: Predictions, gold: Tensor, keep: Bool[Tensor, "B T"], choose: Choose
) -> Tensor:
    """The truth where ``keep`` is true, else what the model says after the true places before.

    Raises `UserError` for a model that reads step by step.
    """
    if own.each is None:
        raise UserError("a model that reads step by step has no second pass")
    predicted = own.each(gold[:, :-1], choose)
    return torch.cat((gold[:, :1], _where(keep[:, 1:], gold[:, 1:], predicted)), dim=1)


def _where(keep: Bool[Tensor, "*B"], gold: Tensor, predicted: Tensor) -> Tensor:
    """One choice for all channels of a row."""
    return torch.where(keep.view(*keep.shape, *[1] * (gold.ndim - keep.ndim)), gold, predicted)


def decode(
    model: EncoderDecoder | LanguageModel,
    ids: Int[Tensor, "B T"],
    memory: Memory | None,
    state: State | None = None,
) -> Float[Tensor, "B T D"]:
    """A vector at each place of what is read, by a model with a source or without."""
    if isinstance(model, LanguageModel):
        return model.decode(ids, state)
    assert memory is not None
    return model.decode(ids, memory, state)


def predict(
    model: EncoderDecoder | LanguageModel,
    ids: Int[Tensor, "B T"],
    memory: Memory | None,
    state: State | None = None,
) -> Float[Tensor, "B T V"]:
    """Scores of the token that follows each place, by a model with a source or without."""
    if isinstance(model, LanguageModel):
        return model.logits(model.decode(ids, state))
    assert memory is not None
    return model.predict(ids, memory, state)


def tokens_of(
    model: EncoderDecoder | LanguageModel,
    memory: Memory | None = None,
    prompt: int | Int[Tensor, "B 1"] = 1,
) -> Predictions:
    """What a model that writes tokens says, from the beginning of its text; for one reading."""
    state = State()

    def following(ids: Tensor, choose: Choose) -> Tensor:
        return _choose(predict(model, ids, memory, state)[:, -1], choose)

    def everywhere(ids: Tensor, choose: Choose) -> Tensor:
        return _choose(predict(model, ids, memory), choose)

    return Predictions(following, everywhere if model.decoder.parallel else None, prompt)


def _choose(logits: Float[Tensor, "*B V"], choose: Choose) -> Int[Tensor, "*B"]:
    if choose == "greedy":
        return logits.argmax(dim=-1)
    odds = logits.float().softmax(dim=-1)
    return torch.multinomial(odds.flatten(0, -2), 1).view(odds.shape[:-1])


# What is minimised. A new objective is one class here, or in a file of its own.


class Objective(Configurable):
    """Computes a `Loss`, sums over targets, from hidden states and targets."""

    class Config(BaseConfig, family="objective"):
        """``teacher_forcing`` is what a model that writes reads in training."""

        teacher_forcing: TeacherForcing.Config = Always.Config()
        """How often the model reads the truth instead of its own output."""

    numeric: ClassVar[bool] = False  # whether it compares numbers, not tokens

    def __init__(self, config: Config) -> None:
        self.config = config
        self.teacher_forcing: TeacherForcing = config.teacher_forcing.build()
        self.step = 0

    def advance(self, step: int) -> None:
        """Say which step of training comes next, from 1, for what changes in its course."""
        self.step = step

    def read(self, own: Predictions, gold: Tensor) -> Tensor:
        """What a model reads at this step in place of ``gold`` (B, T, …)."""
        return self.teacher_forcing.read(own, gold, self.step)

    def loss(self, forward: Callable[[nn.Module], Loss], model: nn.Module) -> Loss:
        """The loss of a batch of training, of which ``forward`` computes that of one pass."""
        return forward(model)


class CrossEntropy(Objective):
    """NLL = −Σ_t log p(y_t | y_<t), with the labels y_ls = (1 − α) y_hot + α/V (Szegedy, 2016)."""

    class Config(Objective.Config, kind="cross_entropy"):
        """``label_smoothing`` is α."""

        label_smoothing: float = Field(0.1, ge=0, lt=1)
        """Share of the probability that goes to all other tokens."""

    config: Config

    def __call__(
        self,
        hidden: Float[Tensor, "N D"],
        weight: Float[Tensor, "V D"],
        target: Int[Tensor, "N"],
        bias: Float[Tensor, "V"] | None = None,
    ) -> Loss:
        """The loss of N targets, the logits being W h + b."""
        if bias is not None:  # W h + b = [W b] [h; 1]
            hidden = torch.cat((hidden, hidden.new_ones(len(hidden), 1)), dim=1)
            weight = torch.cat((weight, bias[:, None]), dim=1)
        product, scores = definer(self, "_of_product"), definer(self, "of_scores")
        if scores is not product and issubclass(scores, product):  # a derived loss, not the kernel
            return self.of_scores(linear(hidden, weight), target)
        return self._of_product(hidden, weight, target)

    def of_scores(self, scores: Float[Tensor, "N V"], target: Int[Tensor, "N"]) -> Loss:
        """The loss of N targets, of scores that a model computes in its own way."""
        log_p = single(scores).log_softmax(dim=-1)
        nll = -log_p.gather(-1, target[:, None]).sum()
        smoothing = self.config.label_smoothing
        total = (1 - smoothing) * nll - smoothing * log_p.mean(dim=-1).sum() if smoothing else nll
        return Loss(total, len(target), {"nll": nll.detach()})

    def _of_product(self, hidden: Tensor, weight: Tensor, target: Tensor) -> Loss:
        total, nll = linear_cross_entropy(hidden, weight, target, self.config.label_smoothing)
        return Loss(total, len(target), {"nll": nll})


class Compared(CrossEntropy):
    """Cross-entropy, and what several passes over the same batch say, compared."""

    def __init__(self, config: CrossEntropy.Config) -> None:
        super().__init__(config)
        self._products: list[Product] | None = None  # of the passes so far

    def _of_product(self, hidden: Tensor, weight: Tensor, target: Tensor) -> Loss:
        if self._products is not None:
            self._products.append((hidden, weight))
        return super()._of_product(hidden, weight, target)

    def passes(
        self, forward: Callable[[nn.Module], Loss], models: Sequence[nn.Module]
    ) -> tuple[list[Loss], list[Product]]:
        """The loss of each model, and the vectors and the weight of which its logits are made.

        Raises `UserError` for a model whose probabilities are not those of its output layer.
        """
        products: list[Product] = []
        self._products = products
        try:
            losses = [forward(model) for model in models]
        finally:
            self._products = None
        if len(products) != len(models):
            raise UserError(
                f"{self.config.kind} compares the scores of one output layer, and this model's "
                "probabilities are made of others: use cross_entropy"
            )
        return losses, products


class RDrop(Compared):
    """The mean of two passes with dropout, drawn together: L = ½ (L₁ + L₂) + β/2 · D,
    D = ½ Σ_t KL(p₁‖p₂) + KL(p₂‖p₁), of the same batch (Liang et al., 2021).

    A step is two passes, so it takes twice the time. The paper's loss is twice this one. Raises
    `UserError` for a model whose probabilities are not those of its output layer.
    """

    class Config(CrossEntropy.Config, kind="r_drop"):
        """``weight`` is β."""

        weight: float = Field(5.0, ge=0)  # of the divergence: 5 for translation, 1 for labels

    config: Config

    def loss(self, forward: Callable[[nn.Module], Loss], model: nn.Module) -> Loss:
        (first, second), products = self.passes(forward, (model, model))
        (hidden, weight), (other, _) = products
        divergence = linear_divergence(hidden, other, weight) / 2
        total = (first.total + second.total + self.config.weight * divergence) / 2
        logged = {name: (first.logged[name] + second.logged[name]) / 2 for name in first.logged}
        return Loss(total, first.count, logged | {"divergence": divergence.detach()})


class Distillation(Compared):
    """The truth, and what trained models say of the same places: L = (1 − λ) L_CE + λ K,
    K = Σ_t KL(p̄_t‖p_t), p̄ the mean p of the teachers (Hinton et al., 2015).

    Teachers are runs of the same task, of any model, with the same tokens; a step takes a pass of
    each besides. Raises `UserError` for models whose probabilities are not of an output layer.
    """

    class Config(CrossEntropy.Config, kind="distillation"):
        """``weight`` is λ."""

        teachers: tuple[str, ...] = Field(min_length=1)  # folders of runs
        weight: float = Field(0.5, ge=0, le=1)  # of what the teachers say

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.teachers: Sequence[nn.Module] = ()  # `foveate.run.training` reads the runs

    def loss(self, forward: Callable[[nn.Module], Loss], model: nn.Module) -> Loss:
        with torch.no_grad():
            _, taught = self.passes(forward, self.teachers)
        (own,), (product,) = self.passes(forward, (model,))
        divergence = linear_taught(*product, taught)
        total = (1 - self.config.weight) * own.total + self.config.weight * divergence
        return Loss(total, own.count, own.logged | {"divergence": divergence.detach()})


def token_loss(
    model: EncoderDecoder | LanguageModel, batch: DecoderBatch, objective: CrossEntropy
) -> Loss:
    """The loss of the places that count, after what the objective lets the decoder read."""
    read = objective.read(tokens_of(model, batch.memory, batch.prompt), batch.gold)
    if isinstance(model, PointerGenerator):
        return pointer_loss(model, read, batch, objective)
    return loss_at(model, outputs_of(model, read, batch.memory), batch, objective)


def outputs_of(
    model: EncoderDecoder | LanguageModel, ids: Int[Tensor, "B T"], memory: Memory | None
) -> Float[Tensor, "B T D"]:
    """The vectors of which the output layer makes scores; the scores of a model with its own."""
    return (decode if model.scores_are_product else predict)(model, ids, memory)


def loss_at(
    model: EncoderDecoder | LanguageModel,
    outputs: Float[Tensor, "B T D"],
    batch: DecoderBatch,
    objective: CrossEntropy,
) -> Loss:
    """The loss of the positions that count, from the outputs of all."""
    outputs, target = outputs.flatten(0, 1), batch.target.flatten()  # (B, T, D) -> (B·T, D)
    if batch.real is not None:
        outputs, target = outputs[batch.real], target[batch.real]
    if not model.scores_are_product:
        return objective.of_scores(outputs, target)
    return objective(outputs, model.output.weight, target, model.output.bias)


def pointer_loss(
    model: PointerGenerator, read: Tensor, batch: DecoderBatch, objective: CrossEntropy
) -> Loss:
    """L = Σ_t −(1 − α) log P(y_t) − α/V Σ_w log P_vocab(w) + λ Σ_i min(α_ti, c_ti).

    α without index is the label smoothing, λ the weight of the coverage loss (See et al., 2017).
    """
    assert batch.memory is not None
    sums = [
        (part if batch.real is None else part.flatten()[batch.real]).sum()
        for part in model.score(read, batch.memory, batch.target)
    ]
    log_p, vocabulary, coverage = sums
    smoothing = objective.config.label_smoothing
    total = -(1 - smoothing) * log_p - smoothing * vocabulary
    count = batch.target.numel() if batch.real is None else len(batch.real)
    logged = {"nll": -log_p.detach()}
    if model.config.coverage is not None:
        total = total + model.config.coverage * coverage
        logged["coverage"] = coverage.detach()
    return Loss(total, count, logged)


def mean_nll(
    task: Any,
    model: EncoderDecoder | LanguageModel,
    split: str,
    lengths: NDArray[np.int32],
    batch_tokens: int,
) -> float:
    """Mean −log p of a token of a split, all that is read being true."""
    plain = CrossEntropy.Config(label_smoothing=0.0).build()
    total, count = 0.0, 0
    for indices in sorted_batches(lengths, batch_tokens):
        batch = task.decoder_batch(model, task.batch(split, indices.tolist()))
        loss = token_loss(model, batch, plain)
        total, count = total + float(loss.logged["nll"]), count + loss.count
    return total / max(count, 1)


# REINFORCE: the gradient of an expected reward through choices that have no gradient themselves.
#
# ∇ E[R] ≈ Σ_t (R_t − b_t) ∇ log π(choice_t)      (Williams, 1992)


class Reinforce(CrossEntropy):
    """Cross-entropy for what is computed, REINFORCE for what is drawn, squares for the baseline:
    NLL − λ Σ_t (R_t − b_t) log π_t + Σ_t (R_t − b_t)² (Mnih et al., 2014; Xu et al., 2015).
    """

    class Config(CrossEntropy.Config, kind="reinforce"):
        """``weight`` is λ."""

        label_smoothing: float = Field(0.0, ge=0, lt=1)
        """Share of the probability that goes to all other answers."""
        weight: float = Field(1.0, gt=0)  # of the policy gradient in the loss

    config: Config


def add_choices(
    loss: Loss,
    made: Sequence[HardChoice],
    reward: Float[Tensor, "B"] | Float[Tensor, "T B"],
    objective: Objective,
) -> Loss:
    """The loss with what T choices cost; ``reward`` R of each row, or of each choice of each row.

    Raises `UserError` where a model chooses and the objective would not train it to.
    """
    if not made:
        return loss
    if not isinstance(objective, Reinforce):
        raise UserError(
            "the model draws where to look, and cross-entropy alone cannot train that: "
            'write [objective] kind = "reinforce"'
        )
    log_p = torch.stack([choice.log_probability.float() for choice in made])  # (T, B)
    reward = reward.detach().float().expand_as(log_p)
    advantage = reward
    total = loss.total
    baselines = [choice.baseline.float() for choice in made if choice.baseline is not None]
    if baselines:
        expected = torch.stack(baselines)
        advantage = reward - expected.detach()
        total = total + (reward - expected).square().mean(dim=0).sum()
    drawn = objective.config.weight * (advantage * log_p).sum()
    logged = loss.logged | {"reward": reward.mean(dim=0).sum()}
    return Loss(total - drawn, loss.count, logged)


# What captioning adds to cross-entropy: looking everywhere once, and drawing where to look.
#
# doubly stochastic:  λ Σ_i (1 − Σ_t α_ti)²                          (Xu et al., 2015, eq. 14)
# hard attention:     −Σ_t A_t log p(s_t)
#                     A_t = Σ_{u ≥ t} [log p(y_u | drawn) − log p(y_u | expected)]
#
# The baseline of hard attention is what the same words get when nothing is drawn; Xu et al. take a
# moving average of rewards, which would be state outside of the model.


def attentions(model: nn.Module, block: str) -> list[BaseAttention]:
    """The attentions of a model whose names end in ``block``, in the order of their layers."""
    return [
        module
        for name, module in model.named_modules()
        if isinstance(module, BaseAttention) and name.endswith(block)
    ]


@contextmanager
def watched(layers: Sequence[BaseAttention]) -> Iterator[list[list[Tensor]]]:
    """Collect the weights (B, H, T, S) that each attention forms, call by call, with their graph.

    `foveate.inspect.records` is for looking and keeps no graph; this is for losses. A tap that was
    there goes on being called.
    """
    weights: list[list[Tensor]] = [[] for _ in layers]
    taps = [layer.tap for layer in layers]

    def watching(before: Tap | None, calls: list[Tensor]) -> Tap:
        def tap(formed: Tensor) -> Tensor | None:
            replaced = None if before is None else before(formed)
            calls.append(formed if replaced is None else replaced)
            return replaced

        return tap

    for layer, before, calls in zip(layers, taps, weights, strict=True):
        layer.tap = watching(before, calls)
    try:
        yield weights
    finally:
        for layer, before in zip(layers, taps, strict=True):
            layer.tap = before


def doubly_stochastic(
    layers: Sequence[list[Tensor]], real: Bool[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Σ over pictures and places i of (1 − Σ_t α_ti)², the mean of heads and layers.

    ``layers`` hold weights (B, H, T, S) in pieces along T; ``real`` is false at padding.
    """
    parts = []
    for pieces in layers:
        weights = torch.cat(pieces, dim=2).float()
        looks = (weights * real[:, None, :, None]).sum(dim=2)  # (B, H, S)
        parts.append((1 - looks).square().sum(dim=2).mean(dim=1).sum())
    return torch.stack(parts).mean()


def steps_drawn(made: Sequence[HardChoice], steps: int) -> list[HardChoice]:
    """One choice for each of T steps, of all layers together.

    A recurrent decoder draws (B, 1) T times, a Transformer (B, T) in each of its layers.
    """
    drawn = torch.cat([choice.log_probability for choice in made], dim=1)
    each = drawn.unflatten(1, (-1, steps)).sum(dim=1)  # (B, L·T) -> (B, T)
    return [HardChoice(log_p) for log_p in each.unbind(dim=1)]


def advantage(
    drawn: Float[Tensor, "B T"], expected: Float[Tensor, "B T"], real: Bool[Tensor, "B T"]
) -> Float[Tensor, "T B"]:
    """A_t: how much better the words from t on were for what was drawn."""
    gain = (drawn - expected) * real
    return gain.flip(1).cumsum(dim=1).flip(1).T
