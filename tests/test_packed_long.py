"""Models with few positions cut long lines, count what they cut, and end their outputs in time."""

from pathlib import Path
from typing import Any

import pytest

from foveate.engine.packed import PackedModel
from foveate.native.kernels import without_kernels
from foveate.run.pack import content
from foveate.run.training import train
from small_runs import CLASSIFIER, TRAIN, TRANSLATOR, write_data

SIZES = 'kind = "transformer", hidden_size = 16, num_heads = 2, num_layers = 1'
LEARNED = SIZES + ', position = {{ kind = "learned", max_length = 9 }}'
PLACES = 'kind = "recurrent", embedding_size = 16, hidden_size = 16, '
PLACES += 'attention = {{ score = {{ kind = "location", max_length = 9 }} }}'


def translator(encoder: str, decoder: str) -> str:
    return TRANSLATOR.replace("{encoder}", encoder).replace("{decoder}", decoder)


PREFIX = translator("", "").partition("[model]")[0].replace('"translation"', '"prefix_translation"')
CONFIGS = {
    "both": translator(LEARNED, LEARNED),
    "decoder": translator(SIZES, LEARNED),
    "by place": translator(SIZES, PLACES),
    "prefix": f'{PREFIX}[model]\nkind = "language_model"\ndecoder = {{{{ {LEARNED} }}}}\n',
    "labels": CLASSIFIER.replace("num_layers = 1", "num_layers = 1" + LEARNED[len(SIZES) :]),
}
LONG = "the dog runs " * 5


@pytest.mark.parametrize("name", CONFIGS)
def test_a_long_line_is_cut_and_counted(name: str, tmp_path: Path) -> None:
    """By the same number of tokens in both engines; a short one beside it is answered as alone."""
    write_data(tmp_path)
    text = CONFIGS[name].format(folder=tmp_path.as_posix())
    text = text.replace("max_length = 9", "max_length = 12") if name == "prefix" else text
    (tmp_path / "c.toml").write_text(text + TRAIN.format(steps=4, half=2), "utf-8")
    run = train(tmp_path / "c.toml", folder=tmp_path / "run")  # validated, that is decoded, too
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
