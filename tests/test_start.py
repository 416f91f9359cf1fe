"""Beginning with the weights of another run: what is taken, what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from foveate.config import ConfigError
from foveate.start import Start, copy_parts


def model(vocabulary: int = 6, size: int = 3, labels: int = 2) -> nn.ModuleDict:
    encoder = nn.ModuleDict(
        {"embedding": nn.Embedding(vocabulary, size), "layer": nn.Linear(size, 4)}
    )
    return nn.ModuleDict(
        {"encoder": encoder, "encoder2": nn.Linear(1, 1), "output": nn.Linear(4, labels)}
    )


def test_the_named_parts_are_taken_and_no_others() -> None:
    given, own = model(), model(labels=5)
    before = {name: tensor.clone() for name, tensor in own.state_dict().items()}
    said = copy_parts(Start(run="runs/a", parts=("encoder",)), given.state_dict(), own)
    for name, tensor in own.state_dict().items():
        wanted = given.state_dict() if name.startswith("encoder.") else before
        assert torch.equal(tensor, wanted[name]), name
    assert "runs/a" in said
    assert f"{6 * 3 + 3 * 4 + 4} weights in 3 tensors" in said
    one = copy_parts(Start(run="r", parts=("output.bias",)), own.state_dict(), model(labels=5))
    assert "5 weights in 1 tensors" in one


def test_without_parts_everything_is_taken() -> None:
    given, own = model(), model()
    copy_parts(Start(run="runs/a"), given.state_dict(), own)
    for name, tensor in own.state_dict().items():
        assert torch.equal(tensor, given.state_dict()[name])


@pytest.mark.parametrize(
    ("own", "parts", "said"),
    [
        (model(vocabulary=7), ("encoder",), "6 tokens or labels there, 7 here"),
        (model(size=5), ("encoder",), "runs/a/config.toml"),
        (model(labels=3), (), "output.bias"),
        (model(), ("encoders",), "no 'encoders'; there are encoder, encoder2, output"),
        (nn.ModuleDict({"encoder": nn.Linear(3, 4)}), ("encoder",), "of another model"),
    ],
)
def test_what_does_not_fit_is_refused_whole(
    own: nn.Module, parts: tuple[str, ...], said: str
) -> None:
    before = {name: tensor.clone() for name, tensor in own.state_dict().items()}
    with pytest.raises(ConfigError, match=said):
        copy_parts(Start(run="runs/a", parts=parts), model().state_dict(), own)
    assert all(torch.equal(t, before[n]) for n, t in own.state_dict().items())


def test_another_vocabulary_is_refused_with_a_remedy() -> None:
    start = Start(run="runs/a", vocabulary="extend")
    with pytest.raises(ConfigError, match='write "same"'):
        copy_parts(start, model().state_dict(), model())
