"""Lines of a packed file: those that are too long, and raw lines of the data's format."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foveate.engine.packed import PackedModel
from foveate.nn.native.kernels import without_kernels
from foveate.run.pack import content
from small_runs import CLASSIFIER, TRANSLATOR, trained, translator_text, write_data

SIZES = 'kind = "transformer", hidden_size = 16, num_heads = 2, num_layers = 1'
LEARNED = SIZES + ', position = {{ kind = "learned", max_length = 9 }}'
PLACES = 'kind = "recurrent", embedding_size = 16, hidden_size = 16, '
PLACES += 'attention = {{ score = {{ kind = "location", max_length = 9 }} }}'


PREFIX = TRANSLATOR.partition("[model]")[0].replace('"translation"', '"prefix_translation"')
CONFIGS = {
    "both": translator_text(LEARNED, LEARNED),
    "decoder": translator_text(SIZES, LEARNED),
    "by place": translator_text(SIZES, PLACES),
    "prefix": f'{PREFIX}[model]\nkind = "language_model"\ndecoder = {{{{ {LEARNED} }}}}\n',
    "labels": CLASSIFIER.replace("num_layers = 1", "num_layers = 1" + LEARNED[len(SIZES) :]),
}
LONG = "the dog runs " * 5


@pytest.mark.parametrize("name", CONFIGS)
def test_a_long_line_is_cut_and_counted(name: str, tmp_path: Path) -> None:
    """By the same number of tokens in both engines; a short one beside it is answered as alone."""
    write_data(tmp_path)
    longest = "max_length = 12" if name == "prefix" else "max_length = 9"
    run = trained(tmp_path, CONFIGS[name].replace("max_length = 9", longest))  # and decoded
    packed = PackedModel(Path("m.safetensors"), *content(run, "fp32"), threads=1)

    def answers(model: Any) -> list[Any]:
        lines = [LONG, "the dog"]
        return model.classify(lines) if name == "labels" else model.translate(lines, 2)

    own, right = answers(packed), answers(run)
    with without_kernels():
        plain = answers(run)
    assert list(map(str, own)) == list(map(str, right)) == list(map(str, plain))
    cut = [answer.cut for answer in own]
    assert cut == [answer.cut for answer in right] == [answer.cut for answer in plain]
    assert bool(cut[0]) == (name != "decoder") and not cut[1]


# ---- A raw line of the data's format is answered, scored, linked and mapped as its source is
CONFIG = """
[data]
format = "inflection"

[task]
kind = "{task}"
source = "{folder}/forms.{{split}}"
tokenizer = {{ kind = "character", symbols = "<[^<>]+>" }}

[model]
"""
PART = f"{{{{ {SIZES} }}}}"
MODELS = {
    "translation": f'kind = "encoder_decoder"\nencoder = {PART}\ndecoder = {PART}\n',
    "prefix_translation": f'kind = "language_model"\ndecoder = {PART}\n',
}
SOURCE, RAW = "Hahn<N><GEN><SG>", ["Hahn\tHahnes\tN;GEN;SG", "Hahn\tN;GEN;SG"]


@pytest.mark.parametrize("task", MODELS)
def test_a_raw_line_is_read_as_its_source(task: str, tmp_path: Path) -> None:
    rows = [f"{word}\t{word}es\tN;GEN;SG\n" for word in ("Hahn", "Tag", "Hof", "Wald")]
    for split in ("train", "valid", "test"):
        (tmp_path / f"forms.{split}").write_text("".join(rows), "utf-8")
    run = trained(tmp_path, CONFIG.replace("{task}", task) + MODELS[task])
    packed = PackedModel(Path("m.safetensors"), *content(run, "fp32"), threads=1)
    for model in (run, packed):
        right = model.translate([SOURCE])[0]
        own, pairs = model.explain(SOURCE, "Hahnes"), [(SOURCE, "Hahnes")]
        assert any("<GEN>" in labels for labels in own.columns.values())
        for raw in RAW:
            answer = model.translate([raw])[0]
            assert answer.hypotheses == right.hypotheses and answer.source == raw
            assert model.score([(raw, "Hahnes")]) == model.score(pairs)
            assert model.sides("translate").addressed([raw]) == [SOURCE]
            records = [model.explain(raw, "Hahnes"), answer.record()]
            for record, other in zip(records, (own, right.record()), strict=True):
                assert (record.rows, record.columns) == (other.rows, other.columns)
                for name, weights in record.maps.items():
                    np.testing.assert_array_equal(weights, other.maps[name])
            if task == "translation":
                assert model.links([(raw, "Hahnes")]) == model.links(pairs)
                assert answer.alignment() == right.alignment()
