"""Laws of models that read a text and leave no text: every encoder with every pooling."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from foveate.data.words import document_terms
from foveate.look.hooks import capture
from foveate.models.classic import BagEncoder
from foveate.models.classifier import Attentive, Classifier, First
from foveate.models.encoder_decoder import Encoder, Memory
from foveate.models.language_model import MaskedLanguageModel
from foveate.nn.spec import Tokens
from laws.conftest import RECURRENT, build, check_saved, defaults, gradients_reach, ids, real
from tolerances import close

LENGTHS = (6, 4, 5)
KEYS, SOURCE = real(*LENGTHS), ids(3, 6)
CONFIGS: dict[str, Any] = {}
for name, encoder in defaults("encoder").items():
    CONFIGS[f"masked {name}"] = MaskedLanguageModel.Config(encoder=encoder)
    for kind, pooling in defaults("pooling").items():
        parts = {"encoder": encoder, "pooling": pooling}
        CONFIGS[f"{name} {kind}"] = Classifier.Config(**parts, dropout=0.0)


@pytest.fixture(params=CONFIGS)
def model(request: pytest.FixtureRequest) -> Any:
    return build(CONFIGS[request.param])


def read_from_both_sides(encoder: Encoder) -> Any:
    """The encoder with first and last values added: alone, one has read itself and nothing more."""
    forward = encoder.forward

    def read(inputs: Tensor, keys: Tensor | None = None) -> Memory:
        values = forward(inputs, keys).values
        return Memory(values + values.flip(1))

    return read


@torch.no_grad()
def test_neither_padding_nor_other_rows_change_anything(model: Any) -> None:
    whole = model(SOURCE, KEYS)
    for row, length in enumerate(LENGTHS):
        alone = model(SOURCE[row : row + 1, :length])[0]
        close(alone, whole[row, :length] if whole.ndim == 3 else whole[row])
    other = torch.where(KEYS, SOURCE, torch.ones_like(SOURCE))
    real_places = KEYS if whole.ndim == 3 else slice(None)
    assert torch.equal(model(other, KEYS)[real_places], whole[real_places])


def test_every_parameter_receives_a_gradient(model: Any) -> None:
    inputs = ids(2, 24)  # as long as places are told apart
    if isinstance(getattr(model, "pooling", None), First):
        model.encoder.forward = read_from_both_sides(model.encoder)
    model(inputs).square().sum().backward()
    gradients_reach(model)


def test_saved_and_loaded_weights_give_the_same_output(model: Any, tmp_path: Path) -> None:
    check_saved(model, build(model.config, seed=1), tmp_path, SOURCE, KEYS)


@torch.no_grad()
def test_a_bag_of_words_does_not_see_the_order() -> None:
    inputs, keys = ids(1, 40), torch.arange(40)[None] < 33
    model = build(Classifier.Config(encoder=BagEncoder.Config(embedding_size=12)))
    expected, part = model(inputs), model(inputs, keys)
    for _ in range(20):
        order = torch.randperm(40)
        close(model(inputs[:, order]), expected)
        close(model(inputs[:, order], keys[:, order]), part)


def test_the_bag_is_the_counts_times_the_embeddings() -> None:
    inputs = ids(3, 9)
    encoder = BagEncoder.Config(embedding_size=12, dropout=0.0).build(Tokens(30))
    counts = document_terms([[f"{i:02}" for i in row] for row in inputs.tolist()])
    table = encoder.stem.embedding.weight[[int(term) for term in counts.terms]]
    close(encoder(inputs).mean(), torch.tensor(counts.table.T, dtype=torch.float32) @ table / 9)
    memory = encoder(inputs, real(9, 4, 5))
    close(memory.select(torch.tensor([2, 1])).mean(), memory.mean()[[2, 1]])


@torch.no_grad()
def test_a_pooling_that_attends_is_seen() -> None:
    config = Classifier.Config(encoder=RECURRENT[0], pooling=Attentive.Config())
    model = build(config)
    plain = model(SOURCE, KEYS)
    with capture(model) as maps:
        assert torch.equal(model(SOURCE, KEYS), plain)
    (weights,) = maps.values()
    assert list(maps) == ["pooling.attention"]
    assert weights.shape == (3, 1, 1, 6)
    close(weights.sum(dim=-1), torch.ones(3, 1, 1))
    assert bool((weights[:, 0, 0][~KEYS] == 0).all())
    values = model.encode(SOURCE, KEYS).values
    close(model.output((weights[:, 0] @ values).squeeze(1)), plain)
