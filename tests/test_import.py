"""Models and vocabularies of others as ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foveate
from foveate.data.tokenizer import Tokenizer
from foveate.export.base import CheckSample, ExchangeError, export, sample_of
from foveate.export.huggingface import import_from
from variants import transformer, translator


@pytest.mark.parametrize("tokenizer", ["bpe", "unigram"])
def test_there_and_back_translates_the_same(tokenizer: str, tmp_path: Path) -> None:
    run = transformer(translator(tmp_path, tokenizer))
    export(run, tmp_path / "there", "huggingface", CheckSample(sample_of(run, 3).sources))
    output = import_from(tmp_path / "there", tmp_path / "back")
    assert "task.source" in output
    back = foveate.load(tmp_path / "back")
    back.config = run.config  # how long outputs may be is not said there
    lines = ["the dog runs", "", "Ünknown ☃"]
    assert [str(a) for a in back.translate(lines, 1)] == [str(a) for a in run.translate(lines, 1)]
    with pytest.raises(FileExistsError, match="is there already"):
        import_from(tmp_path / "there", tmp_path / "back")

    path = tmp_path / "there/tokenizer.json"
    tree = json.loads(path.read_text("utf-8"))
    tree["model"] |= {"type": "WordPiece"}
    path.write_text(json.dumps(tree), "utf-8")
    with pytest.raises(ExchangeError, match=r"tokenizer\.json: a tokenizer of the kind wordpiece"):
        import_from(tmp_path / "there", tmp_path / "other")
    (tmp_path / "there/model.safetensors").rename(tmp_path / "there/pytorch_model.bin")
    with pytest.raises(ExchangeError, match="weights of another form are not read"):
        import_from(tmp_path / "there", tmp_path / "other")
    with pytest.raises(ExchangeError, match=r"may hold a pickle.*save_pretrained"):
        import_from(tmp_path / "there/pytorch_model.bin", tmp_path / "other")
    with pytest.raises(ExchangeError, match="nothing is fetched: download it"):
        import_from(Path("Helsinki-NLP/opus-mt-en-fr"), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_vocabularies_of_others(tmp_path: Path) -> None:
    pieces = ["<blank>", "<s>", "</s>", "<unk>", "▁the", "▁dog", "s"]
    (tmp_path / "shared_vocabulary.json").write_text(json.dumps(pieces), "utf-8")
    (tmp_path / "run.vocab").write_text("".join(f"{p}\t1\n" for p in pieces), "utf-8")
    (tmp_path / "source_vocabulary.txt").write_text("\n".join(pieces), "utf-8")
    for name in ("shared_vocabulary.json", "run.vocab", "source_vocabulary.txt"):
        out = tmp_path / f"{name}.tokenizer.json"
        assert "3 pieces" in import_from(tmp_path / name, out)
        tokenizer = Tokenizer.load(out)
        assert tokenizer.encode("▁the ▁dog s x").ids == [4, 5, 6, 0]
        assert tokenizer.decode([4, 5, 6]) == "▁the ▁dog s"
    (tmp_path / "bad.json").write_text("{}", "utf-8")
    with pytest.raises(ExchangeError, match="no list of pieces"):
        import_from(tmp_path / "bad.json", tmp_path / "x")
