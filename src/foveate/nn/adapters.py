"""Adapters: thin matrices that are trained while the weights beside them stay frozen.

The weight of a linear map is computed from the frozen one and its adapter wherever it is read;
`merged` makes it an ordinary weight again, so an adapter costs nothing once it is trained.
"""

from collections import Counter
from fnmatch import fnmatch

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils import parametrize

from foveate.config import BaseConfig, ConfigError, Configurable

Weight = Float[Tensor, "O I"]


class LoRA(Configurable, nn.Module):
    """W = W₀ + (α / r) B A, where B is 0 at first (Hu et al., 2022)."""

    class Config(BaseConfig, family="adapter", kind="lora"):
        """Patterns match dotted names of the model; ``*`` stands for anything."""

        rank: int = Field(16, gt=0)  # r, the rows of A and the columns of B
        alpha: float = Field(32.0, gt=0)  # α: updates are scaled by α / rank
        parts: tuple[str, ...] = ("*attention.*", "*feed_forward.*")
        """Patterns of the linear maps that get an adapter."""
        whole: tuple[str, ...] = ()  # patterns of weights that are trained without an adapter

    def __init__(self, config: Config, weight: Weight) -> None:
        super().__init__()
        self.scale = config.alpha / config.rank
        self.down = nn.Parameter(weight.new_empty(config.rank, weight.shape[1]))
        self.up = nn.Parameter(weight.new_zeros(len(weight), config.rank))
        nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, weight: Weight) -> Weight:
        """Return W for the frozen ``weight`` W₀."""
        return weight + self.scale * (self.up @ self.down)


class DoRA(LoRA, kind="dora"):
    """W = m V / ‖V‖ by rows, V = W₀ + (α / r) B A, m = ‖W₀‖ at first (Liu et al., 2024).

    m is trained too; as in their §4.3, ‖V‖ is a constant for the gradient.
    """

    def __init__(self, config: LoRA.Config, weight: Weight) -> None:
        super().__init__(config, weight)
        self.magnitude = nn.Parameter(weight.detach().norm(dim=1, keepdim=True))

    def forward(self, weight: Weight) -> Weight:
        """Return W for the frozen ``weight`` W₀."""
        direction = super().forward(weight)
        return self.magnitude * direction / direction.detach().norm(dim=1, keepdim=True)


def adapt(model: nn.Module, config: LoRA.Config) -> str:
    """Freeze a model and add adapters to its linear maps; return a sentence about them.

    Raises ``ConfigError`` if a pattern fits nothing, or fits a weight that two layers share.
    """
    freeze(model, ("*",), but=config.whole)
    uses = Counter(id(x) for part in model.modules() for x in part._parameters.values())
    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear)]
    for pattern in config.parts:
        fitting = [(name, layer) for name, layer in layers if fnmatch(name, pattern)]
        if not fitting:
            raise _unfit(pattern, [name for name, _ in layers], "parts")
        for name, layer in fitting:
            if uses[id(layer.weight)] > 1:
                raise ConfigError(
                    f"{name} shares its weight with another layer: leave it out, or train it whole "
                    "(train.adapter.whole)",
                    ("train", "adapter", "parts"),
                )
            if not parametrize.is_parametrized(layer):
                adapter = config.build(layer.weight)
                parametrize.register_parametrization(layer, "weight", adapter)
    count = sum(map(parametrize.is_parametrized, model.modules()))
    total, trained = (
        sum(p.numel() for p in model.parameters() if p.requires_grad or every)
        for every in (True, False)
    )
    memory = (4 * total + 12 * trained) / 2**20  # gradients and two means of Adam
    maps = f"{count} linear map{'s' * (count != 1)}"
    return (
        f"{config.kind} of rank {config.rank} in {maps}: {trained:,} of {total:,} weights are "
        f"trained; with gradients and Adam they take {memory:,.0f} MiB, activations not counted"
    )


def freeze(model: nn.Module, patterns: tuple[str, ...], but: tuple[str, ...] = ()) -> None:
    """Exclude the weights whose names match a pattern from training, but for some.

    Raises ``ConfigError`` if a pattern fits nothing.
    """
    named = dict(model.named_parameters(remove_duplicate=False))  # a tied weight has two names
    for key, chosen in (("freeze", patterns), ("whole", but)):
        for pattern in chosen:
            fitting = [weight for name, weight in named.items() if fnmatch(name, pattern)]
            if not fitting:
                raise _unfit(pattern, list(named), key)
            for weight in fitting:
                weight.requires_grad_(key == "whole")


def merged(model: nn.Module) -> nn.Module:
    """Return the model, in which every adapter has become part of its weight."""
    for module in model.modules():
        if parametrize.is_parametrized(module):
            parametrize.remove_parametrizations(module, "weight")
    return model.requires_grad_(True)


def _unfit(pattern: str, names: list[str], key: str) -> ConfigError:
    path = ("train", key) if key == "freeze" else ("train", "adapter", key)
    return ConfigError(f"{pattern!r} fits nothing; names are such as {', '.join(names[:4])}", path)
