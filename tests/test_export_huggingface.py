"""Runs as folders of transformers: text in, the same text out, by its own classes alone."""

import json
import warnings
from pathlib import Path

import pytest
import transformers

from foveate.exchange.base import CheckSample, ExchangeError, export, sample_of
from foveate.models.language_model import LanguageModel
from foveate.models.transformer import TransformerDecoder
from small_runs import made
from variants import SIZES, TOKENIZERS, at_scale, transformer, translator, with_model

NONE = CheckSample([])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("huggingface")


@pytest.mark.parametrize("tokenizer", at_scale(sorted(TOKENIZERS), ("bpe", "unigram", "word")))
def test_text_in_and_the_same_text_out(tokenizer: str, folder: Path, tmp_path: Path) -> None:
    run = transformer(translator(folder, tokenizer), seed=3)
    if tokenizer == "word":
        with pytest.raises(ExchangeError, match=r"tokenizer word does not fit tokenizer\.json"):
            export(run, tmp_path / "out", "huggingface", NONE)
        return
    lines = ["the dog runs", "a girl  eats", "un chat dort", "</s> l'homme <s>", "Ünknown ☃"]
    sample = CheckSample([*sample_of(run, 20).sources, *lines])
    checked = export(run, tmp_path / "out", "huggingface", sample)[1]
    assert checked.sentences == 12 and checked.ties == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "out"))
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(str(tmp_path / "out"))
        read = theirs("the dog runs", return_tensors="pt")
        (limit,) = run.search(1, None).limits([read["input_ids"].shape[1] - 1])
        (ids,) = model.generate(**read, max_new_tokens=limit)
    alike = run.decoding(whole_characters=False)  # `generate` may break characters
    answer = str(alike.translate(["the dog runs"], beam_size=1)[0])
    assert theirs.decode(ids, skip_special_tokens=True) == answer


LEARNED = {"kind": "learned", "max_length": 40}
GPT2 = SIZES | {"stem": {"kind": "tokens", "scale": "none"}, "feed_forward": "gelu_tanh"}
GPT2 |= {"position": LEARNED}


@pytest.mark.parametrize("name", ["vit", "language"])
def test_other_models_score_the_same(name: str, tmp_path: Path) -> None:
    run = made(tmp_path, [name], 2)[name]
    if name == "language":
        with pytest.raises(ExchangeError, match="no decoder of the kind recurrent like ours"):
            export(run, tmp_path / "out", "huggingface", NONE)
        run = with_model(run, LanguageModel.Config(decoder=TransformerDecoder.Config.parse(GPT2)))
    else:
        with pytest.raises(ExchangeError, match="a picture of 8 has 5 places"):
            export(run, tmp_path / "out", "huggingface", NONE)
        encoder = run.config.model.encoder
        place = encoder.position.model_copy(update={"max_length": 5})
        encoder = encoder.model_copy(update={"position": place})
        run = with_model(run, run.config.model.model_copy(update={"encoder": encoder}))
    assert "on drawn inputs" in str(export(run, tmp_path / "out", "huggingface", NONE)[1])
    output = json.loads((tmp_path / "out/config.json").read_text())
    assert output["model_type"] == {"vit": "vit", "language": "gpt2"}[name]


def test_what_has_no_place_is_refused(folder: Path, tmp_path: Path) -> None:
    runs = made(folder, ["rnn", "forecaster"], 2)
    for name, reason in (
        ("rnn", "no encoder of the kind recurrent like ours"),
        ("forecaster", r"transformers has no Patch\w* like ours; .* as safetensors"),
    ):
        with pytest.raises(ExchangeError, match=reason):
            export(runs[name], tmp_path / "out", "huggingface", NONE)
    turned = transformer(translator(folder, "bpe"), position="rope")
    with pytest.raises(ExchangeError, match=r"does not support .*position\.kind = 'rope'"):
        export(turned, tmp_path / "out", "huggingface", NONE)
    assert not list(tmp_path.iterdir())
