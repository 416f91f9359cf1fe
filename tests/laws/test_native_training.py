"""What training computes in C equals what PyTorch computes: values and gradients."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.models.encoder_decoder import EncoderDecoder
from foveate.nn.attention import Attention
from foveate.nn.context import Mask
from foveate.nn.linear import Linear
from foveate.nn.native.kernels import cross_entropy_, library, without_kernels
from foveate.nn.native.layers import EVEN, add_bias_, dropped, outer, random_bytes
from laws.conftest import build, ids, real, transformers

pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler: there is one road")

KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
MASKS: dict[str, Callable[[], Mask]] = {
    "none": Mask,
    "keys": lambda: Mask(real(21, 9, 1, 21)),
    "causal": lambda: Mask(causal=True),
    "both": lambda: Mask(real(21, 9, 1, 21), causal=True),
    "blind": lambda: Mask(real(21, 0, 1, 21)),
}


def both(compute: Callable[[], list[Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """What the kernels give and what PyTorch does."""
    torch.manual_seed(1)
    ours = compute()
    torch.manual_seed(1)
    with without_kernels():
        return list(zip(ours, compute(), strict=True))


def near(ours: Tensor, theirs: Tensor, kind: torch.dtype) -> None:
    assert ours.shape == theirs.shape
    ours, theirs = ours.detach().float(), theirs.detach().float()
    share = float((ours - theirs).norm() / theirs.norm().clamp(min=1e-12))
    assert share < (1e-5 if kind == torch.float32 else 0.02), share


@kinds
@pytest.mark.parametrize("mask", [*MASKS.values(), None], ids=[*MASKS, "memory"])
@pytest.mark.parametrize(("heads", "size"), [(1, 7), (4, 64), (3, 51)])
def test_attention(kind: torch.dtype, mask: Callable[[], Mask] | None, heads, size) -> None:
    """To itself, or to a memory of another length and size."""
    attention = Attention.Config(num_heads=heads).build(size, size if mask else 10).to(kind)
    x, weight = torch.randn(4, 21, size, dtype=kind), torch.randn(4, 21, size, dtype=kind)
    memory = None if mask else torch.randn(4, 33, 10, dtype=kind, requires_grad=True)
    seen = mask() if mask else Mask(real(33, 8, 20, 1))

    def compute() -> list[Tensor]:
        query = x.clone().requires_grad_()
        output = attention(query, memory, seen)
        read = [query, attention.value.weight, *([] if memory is None else [memory])]
        return [output, *torch.autograd.grad((output * weight).sum(), read)]

    for ours, theirs in both(compute):
        near(ours, theirs, kind)


@kinds
@pytest.mark.parametrize("residual", [None, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("count", [1, 511, 1300])
def test_dropout(kind: torch.dtype, residual: torch.dtype | None, count: int) -> None:
    change, seed = torch.randn(count).to(kind), -(2**62) - 5
    x = None if residual is None else torch.randn(count, dtype=residual)
    for dtype in (torch.float32, kind):
        ours = dropped(change, seed, 51, dtype, x)
        with without_kernels():
            theirs = dropped(change, seed, 51, dtype, x)
        exact = dtype == torch.float32
        torch.testing.assert_close(ours, theirs, rtol=1e-6 if exact else 0.01, atol=1e-6)
        assert x is not None or torch.equal(ours == 0, random_bytes(seed, count) < 51)


def test_random_bytes_are_those_of_splitmix64() -> None:
    """The first words of seed 0, as the reference implementation (Vigna, 2015) prints them."""
    words = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    expected = b"".join(word.to_bytes(8, "little") for word in words)
    assert bytes(random_bytes(0, 24).tolist()) == expected
    many = random_bytes(77, 2**20).bincount(minlength=256)
    assert abs(many - 4096).max() < 6 * 64  # six standard deviations


@kinds
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1 - 1e-3])
@pytest.mark.parametrize("size", [1, 15, 257])
def test_cross_entropy(kind: torch.dtype, smoothing: float, size: int) -> None:
    logits, target = (9 * torch.randn(7, size)).to(kind), torch.randint(size, (7,))

    def compute() -> list[Tensor]:
        z = logits.clone()
        return [*cross_entropy_(z, target, smoothing), z]

    for ours, theirs in both(compute):
        relative = 1e-4 if kind == torch.float32 else 0.01
        torch.testing.assert_close(ours, theirs, rtol=relative, atol=1e-4)


@pytest.mark.parametrize("rows", [1, EVEN - 1, EVEN, EVEN + 1, 3 * EVEN - 7])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_bf16_maps_of_few_shapes(rows: int, bias: bool, relu: bool) -> None:
    ours, x = Linear(24, 40, bias=bias), torch.randn(rows, 24)
    theirs = nn.Linear(24, 40, bias=bias)
    theirs.load_state_dict(ours.state_dict())
    after = F.relu if relu else nn.Identity()
    result = []
    for linear, map_of in ((ours, lambda x: ours(x, relu)), (theirs, lambda x: after(theirs(x)))):
        read = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            y = map_of(read)
        (y.float() * torch.arange(40)).sum().backward()
        result.append([y, read.grad, *(p.grad for p in linear.parameters())])
    for left, right in zip(*result, strict=True):
        assert left.dtype == right.dtype
        near(left, right, torch.bfloat16)


@pytest.mark.parametrize(
    "shape", [(0, 3, 5), (1, 1, 1), (5, 33, 17), (300, 40, 24), (1025, 513, 70), (256, 64, 600)]
)
def test_outer_products(shape: tuple[int, int, int]) -> None:
    count, out, size = shape
    grad, x = torch.randn(count, out).bfloat16(), torch.randn(count, size).bfloat16()
    sums, sum = outer(grad, x, bias=True)
    assert sum is not None and sums.dtype == sum.dtype == torch.float32
    tolerance = {"rtol": 1e-2, "atol": 2e-2 * count**0.5}
    with without_kernels():
        plain = outer(grad, x, bias=True)
    exact = grad.double().T @ x.double(), grad.double().sum(dim=0)
    for expected in (exact, plain):
        torch.testing.assert_close((sums, sum), expected, **tolerance, check_dtype=False)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("size", [1, 40, 513])
def test_bias_in_place(relu: bool, size: int) -> None:
    y, bias = torch.randn(7, size).bfloat16(), torch.randn(size)

    def compute() -> list[Tensor]:
        return [add_bias_(y.clone(), bias, relu), add_bias_(y.clone(), None, relu)]

    y[2, 0] = torch.nan
    for ours, theirs in both(compute):
        torch.testing.assert_close(ours, theirs, rtol=0.02, atol=1e-2, equal_nan=True)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_of_training(precision: str) -> None:
    encoder, decoder = transformers(hidden_size=24, num_heads=3, dropout=0.2)
    config = EncoderDecoder.Config(encoder=encoder, decoder=decoder)
    model = build(config, vocabulary=67).train()
    source, target, keys = ids(4, 9), ids(4, 7, seed=2), real(9, 4, 7, 1)

    def compute() -> list[Tensor]:
        trained = copy.deepcopy(model)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            hidden = trained.decode(target, trained.encode(source, keys))
            loss = hidden.float().square().mean()
        loss.backward()
        return [loss.detach(), *(p.grad for p in trained.parameters() if p.grad is not None)]

    result = both(compute)
    assert len(result) > 40
    whole = [torch.cat([pair[i].float().flatten() for pair in result]) for i in (0, 1)]
    near(*whole, KINDS[precision])
