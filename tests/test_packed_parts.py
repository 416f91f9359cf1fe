"""A packed file of which any part was changed is refused, or answers as before."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save

import foveate.engine.packed
import stored_models
from foveate.engine.packed import KEY, SHORTLIST, Array, PackedModel
from foveate.errors import UserError

FOLDER = Path(__file__).parent / "packed" / "v1"
STORED = sorted(path.stem for path in FOLDER.glob("*.safetensors"))
NAMES = ["transformer_post", "decoder_only", "classifier", "gru_bahdanau"]
Parts = tuple[dict[str, Any], dict[str, Array]]


@cache
def parts(name: str) -> Parts:
    with safe_open(FOLDER / f"{name}.safetensors", "numpy") as file:
        header = json.loads(file.metadata()[KEY])
    return header, load_file(FOLDER / f"{name}.safetensors")


def loaded(file: Path, header: dict[str, Any], tensors: dict[str, Array]) -> PackedModel:
    file.write_bytes(save(tensors, {KEY: json.dumps(header)}))
    return foveate.engine.packed.load(file, threads=1)


def answers(model: PackedModel) -> str:
    """All that a model answers, and the map of a line."""
    target = "le chien" if len(model.tokenizers) > 1 else None
    record = model.explain("the dog runs", target)
    maps = {name: np.round(weights, 5).tolist() for name, weights in record.maps.items()}
    own = model.header
    figures = [own.licence, own.made_of, own.scores, str(own.corpora), str(own.format)]
    figures += [model.tokenizers[0].tags, model.describe()]
    return repr((stored_models.answers(model), maps, figures))


def changes(value: Any, deep: int = 8) -> Iterator[Any]:
    """A value of JSON in other ways: parts dropped, swapped, doubled, and each changed."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value + 1, value - 1, value * 1000)
    elif isinstance(value, str):
        yield from ("", value + "x", value[:-1])
    elif value is None:
        yield from (1, {"kind": "cmudict"})
    elif isinstance(value, list):
        yield from (value[1:], value[:-1], value[::-1], value + value[-1:])
        for n in sorted({0, len(value) // 2, len(value) - 1}) if value and deep else ():
            for each in changes(value[n], deep - 1):
                yield [*value[:n], each, *value[n + 1 :]]
    elif deep:
        for name in sorted(value)[:12]:
            yield {key: own for key, own in value.items() if key != name}
            for each in changes(value[name], deep - 1):
                yield value | {name: each}


def other_tensors(tensors: dict[str, Array]) -> Iterator[dict[str, Array]]:
    """Each tensor dropped, cut, turned, changed in a number, renamed, swapped with another."""
    names = sorted(tensors)
    for name, after in zip(names, names[1:] + names[:1], strict=True):
        array, changed = tensors[name], tensors[name].copy()
        changed.flat[-1] = changed.flat[-1] / 2 + 1
        yield {key: each for key, each in tensors.items() if key != name}
        for each in (changed, array[:-1].copy(), array.T.copy(), array.astype(np.float16), -array):
            yield tensors | {name: each}
        yield {(key if key != name else "zz"): each for key, each in tensors.items()}
        yield tensors | {name: tensors[after], after: array}


def variants(name: str, sealed: dict[str, Any]) -> Iterator[Parts]:
    """A file with each part changed alone, the hashes of its parts among them."""
    header, tensors = parts(name)
    for field, value in (sealed | {"digests": dict(list(sealed["digests"].items())[:2])}).items():
        yield {key: own for key, own in sealed.items() if key != field}, tensors
        for each in changes(value):
            yield sealed | {field: each}, tensors
    for field in ("labels", "reach", "head", "format", "equations", "new"):
        yield sealed | {field: header.get("search")}, tensors
    yield from ((sealed, other) for other in other_tensors(tensors))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_with_one_part_changed_is_refused_or_answers_alike(name, tmp_path) -> None:
    file = tmp_path / "m.safetensors"
    foveate.engine.packed.repack(FOLDER / f"{name}.safetensors", file, "fp32")
    with safe_open(file, "numpy") as opened:
        sealed = json.loads(opened.metadata()[KEY])
    right = answers(foveate.engine.packed.load(file, threads=1))
    refused = 0
    for header, tensors in variants(name, sealed):
        try:
            own = answers(loaded(file, header, tensors))
        except UserError:
            refused += 1
        else:
            assert own == right, [key for key in header if header[key] != sealed.get(key)]
    assert refused > 100


@pytest.mark.parametrize("name", STORED)
def test_a_file_of_an_earlier_version_is_refused_where_its_sizes_differ(name, tmp_path) -> None:
    """It has no hashes; tokenizers, names and lists of other sizes than the model's are found."""
    header, tensors = parts(name)
    assert "digests" not in header

    def refused(fields: dict[str, Any], more: dict[str, Array] | None = None) -> None:
        with pytest.raises(UserError, match=r"do not fit together|no tokenizer"):
            loaded(tmp_path / "m.safetensors", header | fields, tensors | (more or {}))

    for side, tokenizer in header["tokenizers"].items():
        for other in tokenizers(tokenizer):
            refused({"tokenizers": header["tokenizers"] | {side: other}})
    for field in ("attentions", "labels"):
        for other in ([*header.get(field, []), "one more"], header.get(field, [])[1:]):
            if len(other) != len(header.get(field, [])):
                refused({field: other})
    refused({"maps": ["no tensor"]})
    if header["task"] != "language":
        refused({"search": header["search"] | {"max_extra": 10**6}})
    refused({"equations": [{"score": "q"}] * (len(header["attentions"]) + 1)})
    refused({}, {SHORTLIST[0]: np.arange(3, dtype=np.int32)})
    often, likely = np.arange(3, dtype=np.int32), np.full((2, 2), 10**6, dtype=np.int32)
    refused({}, dict(zip(SHORTLIST, (often, likely), strict=True)))


def tokenizers(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A tokenizer with fewer pieces, and one with more."""
    pieces = tree["vocabulary"]
    if isinstance(pieces, list):
        yield from (tree | {"vocabulary": each} for each in (pieces[:-1], [*pieces, "one more"]))
    yield tree | {"tags": [*tree.get("tags", []), "<2xx>"]}
