"""Transforms of `torch.func` go through modules in training: they take the plain road."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap

from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.mamba import MambaDecoder
from foveate.nn.attention import Attention
from foveate.nn.linear import Dropout, Linear, RMSNorm
from foveate.nn.loss import linear_cross_entropy
from foveate.nn.normalizers import Entmax15, Sparsemax
from foveate.nn.recurrent import LSTMCell
from foveate.nn.spec import Tokens
from laws.conftest import RECURRENT, TRANSFORMER, shrink
from tolerances import close

TARGET = torch.tensor([0, 2, 1, 3])


def lstm() -> Callable[[Tensor], Tensor]:
    cell = LSTMCell.Config().build(8, 8)
    return lambda x: cell.run(x, cell.start(x))[0]


def attention(**parts: object) -> nn.Module:
    return Attention.Config(num_heads=2, **parts).build(8)  # type: ignore[arg-type]


MAKERS: dict[str, Callable[[], Callable[[Tensor], Tensor]]] = {
    "attention": attention,
    "sparsemax": lambda: attention(normalizer=Sparsemax.Config()),
    "entmax": lambda: attention(normalizer=Entmax15.Config()),
    "linear": lambda: Linear(8, 8),
    "norm": lambda: RMSNorm.Config().build(8),
    "lstm": lstm,
    "loss": lambda: lambda x: linear_cross_entropy(x[0], torch.eye(8) + 0.1, TARGET, 0.1)[0],
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # of jvp itself
@pytest.mark.parametrize("name", MAKERS)
def test_every_function_with_a_kernel_can_be_transformed(name: str) -> None:
    compute, x = MAKERS[name](), torch.randn(1, 4, 8, requires_grad=True)
    weigh = torch.linspace(-1, 1, 8)

    def scalar(x: Tensor) -> Tensor:
        output = compute(x)
        return output if output.dim() == 0 else (output * weigh).sum()

    (expected,) = torch.autograd.grad(scalar(x), x)
    close(grad(scalar)(x), expected)
    close(jvp(scalar, (x.detach(),), (torch.ones_like(x),))[1], expected.sum())
    close(vmap(grad(scalar))(torch.stack((x.detach(), x.detach() + 1)))[0], expected)


PAIRS = {"transformer": TRANSFORMER, "recurrent": RECURRENT}
PAIRS |= {"mamba": (TRANSFORMER[0], shrink(MambaDecoder.Config()))}


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_of_a_model_in_training_are_autograds(name: str) -> None:
    encoder, decoder = PAIRS[name]
    config = EncoderDecoder.Config(encoder=encoder, decoder=decoder)
    model = config.build(Tokens(12), Tokens(12)).train()
    source, target = torch.randint(4, 12, (2, 5)), torch.randint(4, 12, (2, 4))
    weights = {name: weight.detach() for name, weight in model.named_parameters()}

    def loss(weights: dict[str, Tensor]) -> Tensor:
        logits = functional_call(model, weights, (source, target))
        return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())

    nn.functional.cross_entropy(model(source, target).flatten(0, 1), target.flatten()).backward()
    for name, gradient in grad(loss)(weights).items():
        close(gradient, model.get_parameter(name).grad, why=name)


def test_dropout_is_drawn_in_a_transform() -> None:
    layer, x = Dropout(0.5).train(), torch.ones(200)
    assert 0.2 < float((grad(lambda x: layer(x).sum())(x) == 0).float().mean()) < 0.8
