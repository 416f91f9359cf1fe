"""Optimizers, learning-rate schedules, and averages of weights."""

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Config, ConfigError, Configurable
from foveate.train.stored import WEIGHTS, TrainError, assign, is_shard, opened, own_tensors


class Schedule(Configurable, ABC):
    """The learning rate at each step; ``peak`` is the optimiser's ``lr``.

    ``max_steps`` is the length of training where it is known, for schedules that end; ``timed``
    says that a number of minutes ends it as well.
    """

    class Config(BaseConfig, family="schedule"):
        """The rise and fall of the rate."""

    def __init__(
        self, config: Config, peak: float, max_steps: int | None = None, timed: bool = False
    ) -> None:
        self.config, self.peak, self.max_steps, self.timed = config, peak, max_steps, timed

    @abstractmethod
    def rate(self, step: float) -> float:
        """The learning rate of step 1, 2, …"""

    def rate_at(self, step: int, time: float) -> float:
        """The rate of a step when the share ``time`` of the minutes allowed is over.

        It follows the larger of the shares of steps and of time, so that it has come down when
        either ends.
        """
        return self.rate(max(step, time * (self.max_steps or 0)))


class Constant(Schedule):
    """rate = peak · min(1, step / warmup)."""

    class Config(Schedule.Config, kind="constant"):
        warmup_steps: int = Field(default=0, ge=0)  # steps in which the rate rises

    config: Config

    def rate(self, step: float) -> float:
        return self.peak * _rise(step, self.config.warmup_steps)


class Noam(Schedule):
    """rate = factor · d^−0.5 · min(step^−0.5, step · warmup^−1.5) (Vaswani et al., 2017).

    It is highest at ``warmup_steps``, at factor / √(d · warmup); the optimiser's ``lr`` is not
    used.
    """

    class Config(Schedule.Config, kind="noam"):
        hidden_size: int = Field(gt=0)  # d, the hidden size of the model
        warmup_steps: int = Field(default=4000, gt=0)  # steps in which the rate rises
        factor: float = Field(default=1.0, gt=0)  # of the whole rate

    config: Config

    def rate(self, step: float) -> float:
        c = self.config
        return float(c.factor * c.hidden_size**-0.5 * min(step**-0.5, step * c.warmup_steps**-1.5))


class InverseSqrt(Schedule):
    """rate = peak · min(step / warmup, √(warmup / step)): linear up, then as 1/√step."""

    class Config(Schedule.Config, kind="inverse_sqrt"):
        warmup_steps: int = Field(default=4000, gt=0)  # steps in which the rate rises

    config: Config

    def rate(self, step: float) -> float:
        warmup = self.config.warmup_steps
        return self.peak * min(step / warmup, math.sqrt(warmup / step))


class _Ending(Schedule):
    """A rise to the peak, then a fall from 1 to ``final_ratio`` of it at ``total_steps``."""

    class Config(Schedule.Config):
        warmup_steps: int = Field(default=0, ge=0)  # steps in which the rate rises
        total_steps: int | None = Field(default=None, gt=0)
        """Where the fall ends; train.max_steps, or else train.max_minutes, where absent."""
        final_ratio: float = Field(default=0.0, ge=0, le=1)
        """The last rate, as a share of the highest."""

    config: Config

    def __init__(
        self, config: Config, peak: float, max_steps: int | None = None, timed: bool = False
    ) -> None:
        super().__init__(config, peak, max_steps, timed)
        self.total = config.total_steps or max_steps
        if self.total is None and not timed:
            raise ConfigError(
                f"{config.kind} must know when training ends: set train.max_steps or "
                "train.max_minutes, or total_steps here",
                ("train", "schedule", "total_steps"),
            )
        if self.total is not None and self.total <= config.warmup_steps:
            raise ConfigError(
                f"warmup_steps = {config.warmup_steps} leaves nothing of {self.total} steps; "
                f"write train.schedule.warmup_steps={self.total // 5}",
                ("train", "schedule", "warmup_steps"),
            )

    def rate(self, step: float) -> float:
        warmup = self.config.warmup_steps
        if self.total is None or step < warmup:
            return self.peak * _rise(step, warmup)
        return self._fallen(min(1.0, (step - warmup) / (self.total - warmup)))

    def rate_at(self, step: int, time: float) -> float:
        if self.total is None:  # only time says how much of the training is done
            return min(self.rate(step), self._fallen(time))
        return self.rate(max(step, time * (self.max_steps or self.total)))

    def _fallen(self, done: float) -> float:
        ratio = self.config.final_ratio
        return self.peak * (ratio + (1 - ratio) * self.fall(done))

    @abstractmethod
    def fall(self, done: float) -> float:
        """From 1 at ``done = 0`` to 0 at ``done = 1``."""


class Cosine(_Ending, kind="cosine"):
    """rate = peak · (r + (1 − r)(1 + cos πx) / 2), x = (step − warmup) / (total − warmup).

    Below ``warmup_steps`` it rises in a line; r is ``final_ratio`` (Loshchilov & Hutter, 2017).
    """

    def fall(self, done: float) -> float:
        return (1 + math.cos(math.pi * done)) / 2


class LinearSchedule(_Ending, kind="linear"):
    """rate = peak · (r + (1 − r)(1 − x)), x = (step − warmup) / (total − warmup)."""

    def fall(self, done: float) -> float:
        return 1 - done


class WarmupStableDecay(_Ending):
    """rate = peak · (r + (1 − r) min(1, (1 − x) / d)): up, level, and down in the last part.

    x = (step − warmup) / (total − warmup); d is ``decay_share`` (Hu, 2024; Hägele, 2024: 0.2).
    """

    class Config(_Ending.Config, kind="warmup_stable_decay"):
        decay_share: float = Field(default=0.2, gt=0, le=1)
        """Share of the steps in which the rate falls."""

    config: Config

    def fall(self, done: float) -> float:
        return min(1.0, (1 - done) / self.config.decay_share)


def _rise(step: float, warmup: int) -> float:
    return min(1.0, step / warmup) if warmup else 1.0


ParameterGroup = dict[str, object]
FUSED = ("cpu", "cuda", "mps")  # devices on which PyTorch steps all parameters in one kernel


class OptimizerConfig(Config, family="optimizer"):
    """Turns gradients into steps; ``config.build(model)`` gives the optimiser of a model."""

    lr: float = Field(default=1e-3, gt=0)  # the highest learning rate

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimiser of the trainable parameters of ``model``."""
        raise NotImplementedError


class AdamConfig(OptimizerConfig, kind="adam"):
    """Adam (Kingma & Ba, 2015), with the constants of Vaswani et al. (2017).

    m ← β₁m + (1 − β₁)g,  v ← β₂v + (1 − β₂)g²,  θ ← θ − lr · m̂ / (√v̂ + ε),
    where m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ). ``weight_decay`` λ adds λθ to g, everywhere.
    """

    betas: tuple[float, float] = (0.9, 0.98)  # decay of the means of the gradient and of its square
    eps: float = Field(default=1e-9, gt=0)  # added to the denominator
    weight_decay: float = Field(default=0.0, ge=0)  # added to the gradient, times the weights

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Adam over all trainable parameters."""
        return torch.optim.Adam(_trainable(model), **self.model_dump(), fused=_fused(model))


class AdamWConfig(AdamConfig, kind="adamw"):
    """Adam with decoupled weight decay (Loshchilov & Hutter, 2019).

    θ ← θ − lr · (m̂ / (√v̂ + ε) + λθ). Biases, norms and embeddings do not decay.
    """

    weight_decay: float = Field(default=0.01, ge=0)
    """By which weights shrink, times the learning rate."""

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """AdamW over two groups: the weights that decay, and those that do not."""
        pairs = zip(_by_decay(model), (self.weight_decay, 0.0), strict=True)
        groups = [{"params": params, "weight_decay": decay} for params, decay in pairs if params]
        return torch.optim.AdamW(groups, **self.model_dump(), fused=_fused(model))


class SGDConfig(OptimizerConfig, kind="sgd"):
    """Stochastic gradient descent: u ← μu + g,  θ ← θ − lr · u (Polyak, 1964; μ = 0: plain)."""

    momentum: float = Field(default=0.0, ge=0, lt=1)  # share of the last update that is kept
    nesterov: bool = False  # whether the gradient is taken where momentum leads
    weight_decay: float = Field(default=0.0, ge=0)  # added to the gradient, times the weights

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """SGD over all trainable parameters."""
        fused = _fused(model) and not any(map(is_shard, _trainable(model)))  # PyTorch has none
        return torch.optim.SGD(_trainable(model), **self.model_dump(), fused=fused)


class MuonConfig(AdamWConfig, kind="muon"):
    """Orthogonalised momentum for the matrices of layers (Jordan, 2024), AdamW for the rest.

    u ← μu + g,  θ ← θ − lr · (0.2 √max(n, m) · orth(g + μu) + λθ),  θ (n, m),
    where orth(M) ≈ U Vᵀ for M = U Σ Vᵀ. The factor gives steps the size of AdamW's, so that one
    rate serves both (Liu et al., 2025). Biases, norms and embeddings are AdamW's.
    """

    momentum: float = Field(default=0.95, ge=0, lt=1)  # μ, share of the last update that is kept

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Muon over the matrices that decay, AdamW over all others.

        Raises ``ConfigError`` where parameters are divided among devices.
        """
        if any(map(is_shard, _trainable(model))):
            raise ConfigError(
                "train.optimizer: muon needs whole matrices, and sharding divides them; "
                "use adamw, or leave sharding out"
            )
        decayed, constant = _by_decay(model)
        groups = [
            {"params": params, "weight_decay": decay, "momentum": momentum}
            for params, decay, momentum in (
                ([p for p in decayed if p.ndim == 2], self.weight_decay, self.momentum),
                ([p for p in decayed if p.ndim != 2], self.weight_decay, None),
                (constant, 0.0, None),
            )
            if params
        ]
        return Muon(groups, lr=self.lr, betas=self.betas, eps=self.eps, fused=_fused(model))


class Muon(torch.optim.AdamW):
    """The steps of `MuonConfig`: groups that have a ``momentum`` take Muon's, others AdamW's.

    As in PyTorch's fused optimizers, a ``found_inf`` of 1 leaves weights and means as they are.
    """

    found_inf: Tensor | None = None

    def __setstate__(self, state: ParameterGroup) -> None:
        torch.optim.Optimizer.__setstate__(self, state)  # AdamW's wants a step of each parameter

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Change the parameters by their gradients."""
        groups = self.param_groups
        self.param_groups = [group for group in groups if group["momentum"] is None]
        super().step()
        self.param_groups = groups
        for group in groups:
            if group["momentum"] is not None:
                for matrix, update in self._updates(group["params"], group["momentum"]):
                    stepped = matrix * (1 - group["lr"] * group["weight_decay"])
                    stepped.add_(update, alpha=-group["lr"] * 0.2 * max(matrix.shape) ** 0.5)
                    self._replace(matrix, stepped)

    def _replace(self, old: Tensor, new: Tensor) -> None:
        """Let ``old`` hold the new values, unless the step is skipped."""
        old.copy_(new if self.found_inf is None else torch.where(self.found_inf > 0, old, new))

    def _updates(self, matrices: list[Tensor], momentum: float) -> Iterator[tuple[Tensor, Tensor]]:
        """Each matrix and orth(g + μu); those of one shape are computed together."""
        alike: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
        for matrix in matrices:
            if matrix.grad is not None:
                state = self.state[matrix]
                if not state:
                    state["momentum"] = torch.zeros_like(matrix)
                u = state["momentum"]
                self._replace(u, u * momentum + matrix.grad)
                alike.setdefault(matrix.shape, []).append((matrix, matrix.grad + momentum * u))
        for each in alike.values():
            own, means = zip(*each, strict=True)
            yield from zip(own, orthogonalize(torch.stack(means)), strict=True)


def orthogonalize(matrices: Tensor) -> Tensor:
    """U Vᵀ of M = U Σ Vᵀ (…, n, m), nearly: singular values of about 0.7 to 1.2.

    Five steps X ← aX + (bA + cA²) X with A = X Xᵀ, an iteration of Newton and Schulz whose
    polynomial lifts small singular values fast (Jordan, 2024); bfloat16 by autocast is enough.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    wide = matrices if matrices.shape[-2] <= matrices.shape[-1] else matrices.mT
    x = wide / (wide.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x if wide is matrices else x.mT).to(matrices.dtype)


def _by_decay(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The trainable parameters that decay, and those that do not.

    A parameter does not decay if it has fewer than two axes (biases, gains of norms), or if any
    module that holds it is an embedding or a norm: a tied output layer goes with its embedding.
    """
    spared: set[nn.Parameter] = set()
    for module in model.modules():
        name = type(module).__name__.lower()
        if isinstance(module, nn.Embedding) or "norm" in name or "embedding" in name:
            spared.update(module.parameters(recurse=False))
    trainable = _trainable(model)
    constant = [p for p in trainable if p.ndim < 2 or p in spared]
    return [p for p in trainable if not (p.ndim < 2 or p in spared)], constant


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _fused(model: nn.Module) -> bool:
    return all(p.device.type in FUSED and p.is_floating_point() for p in _trainable(model))


class MovingMean(Configurable):
    """θ̄_t = δ_t θ̄_{t−1} + (1 − δ_t) θ_t,  δ_t = min(δ, (1 + t) / (10 + t)),  t from 1.

    Polyak averaging with exponential weights (Polyak & Juditsky, 1992); the small δ_t of the first
    steps forget the weights before training. Buffers and integer tensors are those of the model.
    """

    class Config(BaseConfig):
        """``decay`` is δ: the mean remembers about 1 / (1 − δ) steps."""

        decay: float = Field(default=0.999, ge=0, lt=1)
        """Share of the old mean that is kept at each step."""

    def __init__(self, config: Config, model: nn.Module, folder: Path | None = None) -> None:
        """Begin with the weights of the model, or with the mean in a checkpoint's folder."""
        self.config, self.model = config, model
        self.tensors = {name: t.detach().clone() for name, t in own_tensors(model).items()}
        self._trained = [name for name, _ in model.named_parameters() if name in self.tensors]
        if folder is not None:
            with opened(folder / WEIGHTS) as file:
                for name, tensor in self.tensors.items():
                    assign(tensor, file.get_tensor(name))

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step."""
        decay = min(self.config.decay, (1 + step) / (10 + step))
        present = own_tensors(self.model)
        mean = [self.tensors[name] for name in self._trained]
        torch._foreach_lerp_(mean, [present[name] for name in self._trained], 1 - decay)
        for name in present.keys() - set(self._trained):
            self.tensors[name].copy_(present[name])

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The model with the mean as its weights; afterwards with its own, bit for bit."""
        present = own_tensors(self.model)
        own = {name: tensor.clone() for name, tensor in present.items()}
        try:
            _copy(self.tensors, present)
            yield
        finally:
            _copy(own, present)


@torch.no_grad()
def _copy(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    for name, tensor in target.items():
        tensor.copy_(source[name])


def average(folders: Sequence[Path]) -> dict[str, Tensor]:
    """θ̄ = (θ₁ + … + θₖ) / k over the checkpoints in ``folders`` (Vaswani et al., 2017, §6.1).

    Sums are fp64; one tensor of each file is in memory at a time. Integer tensors, such as
    counters, are taken from the last. Raises `TrainError` where names or shapes differ.
    """
    if not folders:
        raise TrainError("no checkpoints to average")
    mean: dict[str, Tensor] = {}
    with ExitStack() as stack:
        every = [stack.enter_context(opened(folder / WEIGHTS)) for folder in folders]
        names = set(every[-1].keys())
        for folder, file in zip(folders, every, strict=True):
            if odd := names ^ set(file.keys()):
                raise TrainError(f"{folder} holds another model than {folders[-1]}: {min(odd)}")
        for name in sorted(names):
            *_, last = parts = [file.get_tensor(name) for file in every]
            for folder, part in zip(folders, parts, strict=True):
                if part.shape != last.shape:
                    raise TrainError(
                        f"{folder}: {name} is {tuple(part.shape)} there and {tuple(last.shape)} "
                        f"in {folders[-1]}"
                    )
            total = sum((part.double() for part in parts), torch.zeros(()).double())
            mean[name] = (total / len(every)).to(last.dtype) if last.is_floating_point() else last
    return mean
