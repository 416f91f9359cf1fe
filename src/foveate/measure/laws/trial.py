"""Laws, the sizes at which they are tested, and counterexamples: matrices that break a law."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from foveate.config import Config

M = TypeVar("M", bound=nn.Module)
Shown = Mapping[str, Tensor | str]  # inputs and outputs of a counterexample by name
ANY = ("any",)
MOST = 64  # how many numbers of a matrix are printed


class Counterexample(AssertionError):
    """A violation of a law: the reason in words, and the inputs and outputs that show it, by name.

    *Shapes:* an output (…, T, S) is shown as matrices of rows T and columns S.
    """

    def __init__(self, why: str, shown: Shown | None = None) -> None:
        super().__init__(why)
        self.why, self.shown = why, shown or {}

    def text(self) -> str:
        """Return the reason, then each matrix under its name."""
        lines = [self.why]
        for name, value in self.shown.items():
            lines += [f"  {name}", *(f"    {row}" for row in matrix(value).splitlines())]
        return "\n".join(lines)


class Sizes(NamedTuple):
    """Batch rows B, positions T, heads H and numbers per head K; the seed of the inputs."""

    rows: int
    length: int
    heads: int
    width: int
    seed: int = 0

    def __str__(self) -> str:
        parts = {"batch row": self.rows, "position": self.length, "head": self.heads}
        words = [f"{count} {noun}{'s' * (count > 1)}" for noun, count in parts.items()]
        return f"{', '.join(words)} of size {self.width}, seed {self.seed}"


SIZES = [  # from small to large; each with several seeds
    Sizes(*shape, seed)
    for shape in (
        (1, 1, 1, 2), (1, 2, 1, 2), (2, 1, 1, 2), (1, 3, 1, 2), (2, 2, 1, 2), (1, 2, 2, 2),
        (2, 3, 2, 2), (1, 4, 1, 4), (2, 5, 2, 4), (3, 8, 2, 4), (2, 16, 4, 4),
    )
    for seed in range(3)
]  # fmt: skip


class Trial:
    """A kind at one size; inputs and parameters are random with a fixed seed.

    ``reference`` is the kind that it reimplements, None without one.
    """

    def __init__(self, config: Config, sizes: Sizes, reference: Config | None = None) -> None:
        self.config, self.sizes, self.reference = config, sizes, reference
        self._generator = torch.Generator().manual_seed(sizes.seed)

    def draw(self, *shape: int) -> Tensor:
        """Return integers from −2 to 2 for seed 0, else normal numbers rounded to one decimal."""
        if self.sizes.seed == 0:
            return torch.randint(-2, 3, shape, generator=self._generator).float()
        return torch.randn(shape, generator=self._generator).mul(10).round() / 10

    def prepare(self, module: M) -> M:
        """Return the module for evaluation with random parameters: zeros would hide faults."""
        generator = torch.Generator().manual_seed(self.sizes.seed)
        for parameter in module.parameters():
            drawn = torch.rand(parameter.shape, generator=generator).mul(20).round() / 10 - 1
            parameter.data.copy_(drawn)
        return module.eval()


@dataclass(frozen=True)
class Law:
    """A property in words, its families, and a function that raises `Counterexample` without it.

    If ``of`` names kinds, it applies to these and to kinds that reimplement one of them;
    `ANY` means all kinds that reimplement another.
    """

    sentence: str
    families: tuple[str, ...]
    holds: Callable[[Trial], None]
    of: tuple[str, ...] = ()

    def concerns(self, config: Config, reference: Config | None) -> bool:
        """Return whether the law applies to this kind, which may reimplement a reference."""
        kind = config.kind if reference is None else reference.kind
        own = self.of == ANY and reference is not None
        return config.family in self.families and (not self.of or kind in self.of or own)


LAWS: list[Law] = []


def law(
    sentence: str, *families: str, of: tuple[str, ...] = ()
) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
    """Register a function as a law of some families."""

    def register(holds: Callable[[Trial], None]) -> Callable[[Trial], None]:
        LAWS.append(Law(sentence, families, holds, of))
        return holds

    return register


def differences(left: Tensor, right: Tensor, exact: bool = False) -> Tensor:
    """Return True where outputs differ by more than rounding explains, or at all if ``exact``.

    A sum of n terms is off by about eps · √n · max |term| (Higham, 2002, §4.2).
    """
    if exact:
        return left.ne(right)
    both = torch.cat([left.detach().flatten(), right.detach().flatten()])
    largest = max([1.0, *both[both.isfinite()].abs().tolist()])
    tolerance = 256 * torch.finfo(torch.float32).eps * largest
    return ~((left - right).abs() <= tolerance) & left.ne(right)  # NaN differs, ∞ equals ∞


def require(holds: object, why: str, shown: Shown | None = None) -> None:
    """Raise a counterexample unless ``holds`` is true."""
    if not holds:
        raise Counterexample(why, shown)


def require_same(output: Tensor, expected: Tensor, why: str, shown: Shown) -> None:
    """Raise a counterexample with both tensors if they differ by more than rounding explains."""
    equal = output.shape == expected.shape and not differences(output, expected).any()
    require(equal, why, {**shown, "came out": output, "the law wants": expected})


def meaning_of(config: Config) -> str:
    """Return the first paragraph of the docstring of what a config builds: equation and source."""
    return " ".join((config.owner.__doc__ or "").split("\n\n")[0].split())


def number(value: float) -> str:
    """Return a number as displayed: 0.87, −1.25, 3."""
    return f"{value:.3g}".replace("-", "−")


def matrix(values: Tensor | str) -> str:
    """Return rows of rounded numbers; a tensor of more dimensions as a list of matrices."""
    if isinstance(values, str):
        return values
    if values.numel() > MOST:
        return f"{tuple(values.shape)}, the first {MOST} numbers\n" + matrix(
            values.detach().flatten()[:MOST].view(-1, 8)
        )
    table = values.detach().reshape(-1, values.shape[-1] if values.dim() else 1).tolist()
    cells = [[number(value) for value in row] for row in table]
    width = max((len(cell) for row in cells for cell in row), default=0)
    lines = ["  ".join(f"{cell:>{width}}" for cell in row) for row in cells]
    per = values.shape[-2] if values.dim() > 2 else len(lines)
    blocks = ["\n".join(lines[i : i + per]) for i in range(0, len(lines), max(per, 1))]
    return "\n\n".join(blocks)
