"""Training objectives: cross-entropy, R-Drop, distillation, REINFORCE, regularisers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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
from foveate.nn.context import State
from foveate.nn.linear import linear, single
from foveate.nn.loss import Product, linear_cross_entropy, linear_divergence, linear_taught
from foveate.nn.native.layers import definer
from foveate.tasks.base import AnyTask, DecoderBatch, Loss

Choose = Literal["greedy", "sample"]


@dataclass(frozen=True)
class Predictions:
    """A model's predictions of what follows: tokens (B, T), or rows of a series (B, T, C).

    ``next`` reads further positions (B, k, …) behind those that it has read and gives what follows
    the last, (B, …). ``each`` reads (B, T, …) at once and gives what follows every position; None
    where a model reads position by position. The first ``prompt`` positions, of all or of each row
    (B, 1), are not predicted.
    """

    next: Callable[[Tensor, Choose], Tensor]
    each: Callable[[Tensor, Choose], Tensor] | None = None
    prompt: int | Int[Tensor, "B 1"] = 1

    def fixed(self, inputs: Tensor) -> Bool[Tensor, "B T"]:
        """True at the positions of the prompt."""
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        return (positions < self.prompt).expand(inputs.shape[:2])


class TeacherForcing(Configurable, ABC):
    """Chooses what is read where ``inputs`` (B, T, …) are the true ones.

    One choice for all that write: decoders of tokens, and forecasters that read their own rows. The
    targets of the loss stay the true ones. What is read is data: the gradient flows through what
    the model makes of it, never into the outputs that it repeats (as in Bengio et al., 2015).
    """

    class Config(BaseConfig, family="teacher_forcing"):
        """The kind of choice."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def read(self, own: Predictions, inputs: Tensor, step: int) -> Tensor:
        """Return what is read, shaped as ``inputs``, at a step of training, counted from 1."""


class Always(TeacherForcing, kind="always"):
    """The true target at every position (Williams & Zipser, 1989)."""

    def read(self, own: Predictions, inputs: Tensor, step: int) -> Tensor:
        return inputs


class OwnOutput(TeacherForcing, kind="own"):
    """The model's own greedy output at every position after the prompt: what it meets in use."""

    def read(self, own: Predictions, inputs: Tensor, step: int) -> Tensor:
        return autoregressive(own, inputs, own.fixed(inputs), "greedy")


class SamplingSchedule(Configurable, ABC):
    """ε(i), the probability that the true token is read at step i."""

    class Config(BaseConfig, family="sampling_schedule"):
        """The schedule of ε."""

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
    """Scheduled sampling: each position read is the true one with probability ε(i) (Bengio, 2015).

    A recurrent model reads its own last output elsewhere. A decoder that reads all positions at
    once predicts from the true target, and that is mixed with the target for a second pass
    (Mihaylova & Martins, 2019). Choices carry no gradient.
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

    def read(self, own: Predictions, inputs: Tensor, step: int) -> Tensor:
        epsilon = self.schedule.epsilon(step)
        if epsilon >= 1:  # no draws: the dropout masks that follow are those of teacher forcing
            return inputs
        keep = torch.rand(inputs.shape[:2], device=inputs.device) < epsilon
        mix = autoregressive if own.each is None else second_pass
        return mix(own, inputs, keep | own.fixed(inputs), self.config.choose)


@torch.no_grad()
def autoregressive(
    own: Predictions, inputs: Tensor, keep: Bool[Tensor, "B T"], choose: Choose
) -> Tensor:
    """The truth where ``keep`` is true, else what the model says after what it has read."""
    prompt = int(torch.as_tensor(own.prompt).min())
    read = [inputs[:, :prompt]]
    for t in range(prompt, inputs.shape[1]):
        read.append(_where(keep[:, t], inputs[:, t], own.next(read[-1], choose))[:, None])
    return torch.cat(read, dim=1)


@torch.no_grad()
def second_pass(
    own: Predictions, inputs: Tensor, keep: Bool[Tensor, "B T"], choose: Choose
) -> Tensor:
    """The truth where ``keep`` is true, else what the model says after the true positions before.

    Raises `UserError` for a model that reads step by step.
    """
    if own.each is None:
        raise UserError("a model that reads step by step has no second pass")
    predicted = own.each(inputs[:, :-1], choose)
    return torch.cat((inputs[:, :1], _where(keep[:, 1:], inputs[:, 1:], predicted)), dim=1)


def _where(keep: Bool[Tensor, "*B"], inputs: Tensor, predicted: Tensor) -> Tensor:
    """One choice for all channels of a row."""
    return torch.where(keep.view(*keep.shape, *[1] * (inputs.ndim - keep.ndim)), inputs, predicted)


def predict(
    model: EncoderDecoder | LanguageModel,
    ids: Int[Tensor, "B T"],
    memory: Memory | None,
    state: State | None = None,
) -> Float[Tensor, "B T V"]:
    """Scores of the token that follows each position, by a model with a source or without."""
    if isinstance(model, LanguageModel):
        return model.logits(model.decode(ids, state))
    assert memory is not None
    return model.predict(ids, memory, state)


def tokens_of(
    model: EncoderDecoder | LanguageModel,
    memory: Memory | None = None,
    prompt: int | Int[Tensor, "B 1"] = 1,
) -> Predictions:
    """Return the predictions of a model that writes tokens, from the beginning of its text."""
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

    def read(self, own: Predictions, inputs: Tensor) -> Tensor:
        """Return what a model reads at this step instead of the true ``inputs`` (B, T, …)."""
        return self.teacher_forcing.read(own, inputs, self.step)

    def loss(self, task: AnyTask, model: nn.Module, batch: object) -> Loss:
        """The loss of a batch of training; that of one pass is the task's."""
        return task.loss(model, batch, self)


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
        self, task: AnyTask, models: Sequence[nn.Module], batch: object
    ) -> tuple[list[Loss], list[Product]]:
        """The loss of each model, and the vectors and the weight of which its logits are made.

        Raises `UserError` for a model whose probabilities are not those of its output layer.
        """
        products: list[Product] = []
        self._products = products
        try:
            losses = [task.loss(model, batch, self) for model in models]
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

    def loss(self, task: AnyTask, model: nn.Module, batch: object) -> Loss:
        (first, second), products = self.passes(task, (model, model), batch)
        (hidden, weight), (other, _) = products
        divergence = linear_divergence(hidden, other, weight) / 2
        total = (first.total + second.total + self.config.weight * divergence) / 2
        logged = {name: (first.logged[name] + second.logged[name]) / 2 for name in first.logged}
        return Loss(total, first.count, logged | {"divergence": divergence.detach()})


class Distillation(Compared):
    """The truth, and what trained models say of the same positions: L = (1 − λ) L_CE + λ K,
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

    def loss(self, task: AnyTask, model: nn.Module, batch: object) -> Loss:
        with torch.no_grad():
            _, taught = self.passes(task, self.teachers, batch)
        (own,), (product,) = self.passes(task, (model,), batch)
        divergence = linear_taught(*product, taught)
        total = (1 - self.config.weight) * own.total + self.config.weight * divergence
        return Loss(total, own.count, own.logged | {"divergence": divergence.detach()})


def token_loss(
    model: EncoderDecoder | LanguageModel, batch: DecoderBatch, objective: CrossEntropy
) -> Loss:
    """The loss of the positions that count, after what the objective lets the decoder read."""
    read = objective.read(tokens_of(model, batch.memory, batch.prompt), batch.inputs)
    if isinstance(model, PointerGenerator):
        return pointer_loss(model, read, batch, objective)
    return loss_at(model, outputs_of(model, read, batch.memory), batch, objective)


def outputs_of(
    model: EncoderDecoder | LanguageModel, ids: Int[Tensor, "B T"], memory: Memory | None
) -> Float[Tensor, "B T D"]:
    """The vectors of which the output layer makes scores; the scores of a model with its own."""
    if not model.scores_are_product:
        return predict(model, ids, memory)
    if isinstance(model, LanguageModel):
        return model.decode(ids)
    assert memory is not None
    return model.decode(ids, memory)


def loss_at(
    model: EncoderDecoder | LanguageModel,
    outputs: Float[Tensor, "B T D"],
    batch: DecoderBatch,
    objective: CrossEntropy,
) -> Loss:
    """The loss of the positions that count, from the outputs of all."""
    outputs, target = outputs.flatten(0, 1), batch.targets.flatten()  # (B, T, D) -> (B·T, D)
    if batch.counted is not None:
        outputs, target = outputs[batch.counted], target[batch.counted]
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
        (part if batch.counted is None else part.flatten()[batch.counted]).sum()
        for part in model.score(read, batch.memory, batch.targets)
    ]
    log_p, vocabulary, coverage = sums
    smoothing = objective.config.label_smoothing
    total = -(1 - smoothing) * log_p - smoothing * vocabulary
    count = batch.targets.numel() if batch.counted is None else len(batch.counted)
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
