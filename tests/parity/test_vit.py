"""Our Vision Transformer is that of the `transformers` library, read and written."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from foveate.exchange.base import ExchangeError
from foveate.exchange.huggingface import from_huggingface, to_huggingface
from foveate.models.classifier import Classifier, First, Mean
from foveate.models.presets import PRESETS
from foveate.nn.spec import Labels, Pixels
from parity.hub import quietly, read_back, transformers
from pictures import vit
from tolerances import MODEL, rounding

NAMES = ("cat", "dog", "a bird", "7", "none of these")
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "patch_size": 4,
    "id2label": dict(enumerate(NAMES)),
    "label2id": {name: n for n, name in enumerate(NAMES)},
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "labels": ("ViTForImageClassification", {"image_size": 12}),
    "not square": ("ViTForImageClassification", {"image_size": (12, 16)}),
    "grey, tanh": (
        "ViTForImageClassification",
        {"image_size": 12, "num_channels": 1, "hidden_act": "gelu_new", "layer_norm_eps": 0.01},
    ),
    "encoder": ("ViTModel", {"image_size": 12}),
    "encoder of hidden patches": ("ViTForMaskedImageModeling", {"image_size": 12}),
}


def saved(name: str, folder: Path) -> Any:
    """A model of theirs in which every tensor counts: none is at its 0 or 1 of the beginning."""
    architecture, fields = CASES[name]

    def make() -> Any:
        config = transformers.ViTConfig(**SIZES | fields)
        return getattr(transformers, architecture)(config).eval()

    torch.manual_seed(0)
    model = quietly(make)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    quietly(lambda: model.save_pretrained(folder))
    return model


def pixels(name: str) -> Tensor:
    size = CASES[name][1]["image_size"]
    height, width = size if isinstance(size, tuple) else (size, size)
    channels = CASES[name][1].get("num_channels", 3)
    return torch.randn(4, channels, height, width, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def outputs_of_ours(model: Any, seen: Tensor) -> Tensor:
    result: Tensor = model(seen) if isinstance(model, Classifier) else model(seen).values
    return result


@torch.no_grad()
def outputs_of_theirs(model: Any, seen: Tensor) -> Tensor:
    if hasattr(model, "classifier"):
        scores: Tensor = model(seen).logits
        return scores
    hidden: Tensor = model.base_model(seen).last_hidden_state
    return hidden


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_theirs_and_survive_the_way_back(name: str, tmp_path: Path) -> None:
    other = saved(name, tmp_path / "there")
    with warnings.catch_warnings(record=True) as output:
        warnings.simplefilter("always")
        model = from_huggingface(tmp_path / "there")
    heads = [str(w.message) for w in output if "tensors of heads are ignored" in str(w.message)]
    assert len(heads) == (0 if isinstance(model, Classifier) else 1)
    expected = outputs_of_theirs(other, pixels(name))
    assert float(expected.std()) > 0.1, "a comparison of zeros says nothing"
    assert float((outputs_of_ours(model, pixels(name)) - expected).abs().max()) < rounding(MODEL)

    to_huggingface(model, tmp_path / "back")
    again = read_back(tmp_path / "back")
    assert torch.equal(outputs_of_theirs(again, pixels(name)), expected)
    assert from_huggingface(tmp_path / "back").config == model.config
    if isinstance(model, Classifier):
        assert model.labels == Labels(NAMES)
        assert tuple(again.config.id2label.values()) == NAMES
        assert again.config.label2id["a bird"] == 2


@torch.no_grad()
def test_our_preset_becomes_theirs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model: Classifier = PRESETS["vit-tiny"]().build(Pixels(1, 28, 28), Labels(NAMES)).eval()
    to_huggingface(model, tmp_path)
    other = quietly(lambda: transformers.AutoModelForImageClassification.from_pretrained(tmp_path))
    seen = torch.randn(2, 1, 28, 28)
    assert float((model(seen) - other.eval()(seen).logits).abs().max()) < rounding(MODEL)


def test_what_has_no_place_is_named(tmp_path: Path) -> None:
    longer = Classifier.Config(encoder=vit(4, 50, (8, 2, 1, 12)), pooling=First.Config())
    small = Pixels(1, 12, 16), Labels(NAMES)
    match = r"max_length = 50: a picture of \[12, 16\] has 13 places"
    with pytest.raises(ExchangeError, match=match):
        to_huggingface(longer.build(*small), tmp_path)
    mean = longer.model_copy(update={"pooling": Mean.Config()})
    with pytest.raises(ExchangeError, match=r"vit does not support pooling\.kind = 'mean'"):
        to_huggingface(mean.build(*small), tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    saved("labels", tmp_path)
    path = tmp_path / "config.json"
    before = json.loads(path.read_text())
    for settings, message in (
        ({"patch_size": [4, 2]}, r"config\.json: patch_size = \[4, 2\]: only square patches"),
        ({"patch_size": 5}, r"config\.json: patches of 5×5 do not fill a picture of 12×12"),
        ({"qkv_bias": False}, r"qkv_bias = False: for vit, only qkv_bias = True"),
        ({"id2label": {"0": "a"}}, r"classifier\.weight is \(5, 32\).* asks for \(1, 32\)"),
    ):
        path.write_text(json.dumps(before | settings))
        with pytest.raises(ExchangeError, match=message):
            from_huggingface(tmp_path)
    path.write_text(json.dumps(before))
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["vit.adapter.weight"] = torch.zeros(2)
    save_file(tensors, tmp_path / "model.safetensors")
    match = r"vit\.adapter\.weight; save the plain ViTForImageClass"
    with pytest.raises(ExchangeError, match=match):
        from_huggingface(tmp_path)


def test_labels_without_names_are_numbered(tmp_path: Path) -> None:
    saved("labels", tmp_path)
    path = tmp_path / "config.json"
    settings = json.loads(path.read_text())
    for key in ("id2label", "label2id"):
        del settings[key]
    path.write_text(json.dumps(settings | {"num_labels": 5}))
    model = from_huggingface(tmp_path)
    assert isinstance(model, Classifier)
    assert model.labels.names[3] == "LABEL_3"
