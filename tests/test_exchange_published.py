"""Published translators with SentencePiece vocabularies: pieces, ids, searches and outputs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import foveate
from foveate.data.sentencepiece import SentencePieceModel
from foveate.data.tokenizer import Tokenizer
from foveate.errors import UserError
from foveate.exchange.base import ExchangeError
from foveate.exchange.importing import import_from, opened
from foveate.exchange.marian import read_marian
from foveate.look.views.examples import text_of
from foveate.nn.native.kernels import without_kernels
from foveate.run import Run
from foveate.train.checkpoint import origin_of
from piece_models import TEXT, hostile, published, trained, wrapped
from test_exchange_hub import Family, Published

spm = pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")


@pytest.fixture(scope="module", params=["nmt_nfkc", "nmt_nfkc_cf", "identity"])
def model_file(request, tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp(request.param), request.param)


def test_pieces_are_those_of_sentencepiece(model_file: Path) -> None:
    tokenizer, library = wrapped(model_file), spm.SentencePieceProcessor(str(model_file))
    lines = [*TEXT, *hostile(1500), "", " ", "  the  cat "]
    own = tokenizer.encode_ids(lines)
    assert [[tokenizer.published[i] for i in ids] for ids in own] == library.encode(lines)
    again = Tokenizer.of(tokenizer.text(), "again")
    for line, ids, encoded in zip(lines, own, again.encode_batch(lines), strict=True):
        assert encoded.ids == ids
        starts = [start for start, _ in encoded.offsets]
        assert starts == sorted(starts)
        assert all(0 <= start <= end <= len(line) for start, end in encoded.offsets)
    for line in TEXT:
        assert again.decode(again.encode(line).ids) == library.decode(library.encode(line))


def test_no_text_becomes_a_special_piece(model_file: Path) -> None:
    tokenizer = wrapped(model_file)
    for text in ("</s>", "<pad>", "a </s> b", "<unk>"):
        assert not {1, 2, 3} & {*tokenizer.encode(text).ids}


def test_a_language_is_a_tag(folder: Path, tmp_path: Path) -> None:
    place = shutil.copytree(folder, tmp_path / "opus-mt-en-roa")
    ids = json.loads((place / "vocab.json").read_text("utf-8"))
    rare = [piece for piece in ids if len(piece) == 1 and piece not in "theca sl▁p"][:2]
    for old, tag in zip(rare, (">>fra<<", ">>cat<<"), strict=True):
        ids[tag] = ids.pop(old)
    (place / "vocab.json").write_text(json.dumps(ids), "utf-8", newline="\n")
    run, theirs = foveate.load(place), transformers.AutoTokenizer.from_pretrained(place)
    own = run.task.source_tokenizer
    assert own.tags.keys() == {"<2fra>", "<2cat>"}
    for language in ("fra", "cat"):
        right = theirs(f">>{language}<< the cat sleeps")["input_ids"][:-1]
        tagged = own.addressed([f">>{language}<< the cat sleeps"])
        for line in own.addressed(["the cat sleeps"], language) + tagged:
            assert [own.published[i] for i in own.encode(line).ids] == right
    with pytest.raises(UserError, match="the languages are: "):
        run.translate(["a dog"], to="deu")
    again = Tokenizer.of(own.text(), "again")
    assert again.pieces == own.pieces and again.tags == own.tags


@pytest.mark.parametrize("cut", [0, 1, 7, 40, 400])
def test_a_file_that_is_no_model_is_named(model_file: Path, tmp_path: Path, cut: int) -> None:
    whole = model_file.read_bytes()
    for content in (whole[:cut], whole[cut + 1 :], whole[:-cut] if cut else b"{}"):
        (tmp_path / "x.spm").write_bytes(content)
        try:
            SentencePieceModel.read(tmp_path / "x.spm")
        except UserError as error:
            assert "x.spm" in str(error)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return published(tmp_path_factory.mktemp("opus"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tied", [None, True, False])
def test_a_folder_gives_the_ids_logits_and_outputs_of_transformers(tied, tmp_path: Path) -> None:
    """With one vocabulary, or one for each side, whose outputs have a table of their own or not."""
    opened = Published(Family(None), published(tmp_path, tied))
    assert opened.run.config.model.tie == {None: "all", True: "target", False: "none"}[tied]
    lines = [*TEXT, "a cat in the street reads .", "le chien lit"]
    opened.check_ids(lines)
    opened.check_outputs(lines)


def check_engine(run: Run, lines: list[str]) -> None:
    with without_kernels():
        by_pytorch = run.translate(lines, num_hypotheses=4)
    for ours, others in zip(run.translate(lines, num_hypotheses=4), by_pytorch, strict=True):
        assert list(ours.hypotheses) == list(others.hypotheses)
        np.testing.assert_allclose(ours.scores, others.scores, atol=1e-4)


@pytest.mark.parametrize("stop", ["count", "bound", "shrink"])
@pytest.mark.parametrize("offset", [0.0, 5.0])
def test_the_engine_in_c_ends_a_beam_as_pytorch_does(folder: Path, stop, offset: float) -> None:
    run = foveate.load(folder).decoding(
        beam_size=4, stop=stop, length_offset=offset, length_penalty=0.8, max_extra=30
    )
    check_engine(run, [*TEXT, "deux chiens parlent d'un livre dans la rue"])


def test_later_outputs_are_found_by_a_bound(folder: Path) -> None:
    """A beam that goes on until no output can be bettered never finds a lower score."""
    run = foveate.load(folder)
    answers = (run.decoding(stop=stop).translate(TEXT) for stop in ("count", "bound"))
    assert all(b.scores[0] >= a.scores[0] - 1e-5 for a, b in zip(*answers, strict=True))


@pytest.mark.parametrize(
    ("name", "tokens", "languages", "called"),
    [
        ("opus-mt-de-en", {"source_lang": "en", "target_lang": "fr"}, ["en", "fr"], None),
        ("opus-mt-de-en", {"source_lang": "", "target_lang": "opus_in"}, ["de", "en"], None),
        ("opus-mt-de-en/transformers", {}, ["de", "en"], "opus-mt-de-en"),
        ("own/Model/checkpoint-100", {}, [], "own"),
        (f"models--me--mt-de-en/snapshots/{'0a' * 20}", {}, [], "models--me--mt-de-en"),
    ],
)
def test_a_run_says_what_it_was_imported_from(
    folder, tmp_path, monkeypatch, name, tokens, languages, called
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    copy = shutil.copytree(folder, tmp_path / name)
    (copy / "tokenizer_config.json").write_text(json.dumps(tokens), "utf-8")
    run = foveate.load(copy)
    said = {"folder": str(copy.resolve()), "family": "Marian", "languages": languages}
    assert said.items() <= origin_of(run.path).items() and run.folder == copy.resolve()
    assert run.path.name == (called or name)
    with pytest.raises(UserError, match=re.escape(f"{copy.resolve()} has no stored example")):
        text_of(run)


def test_a_folder_is_read_once(folder: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, second = foveate.load(folder), foveate.load(folder)
    assert first.path == second.path
    assert first.path.is_relative_to(tmp_path)
    assert foveate.load(shutil.copytree(folder, tmp_path / "copy")).path != first.path


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("vocab.json", lambda t: t.replace(": 5,", ": 500,"), "does not fit config.json"),
        ("vocab.json", lambda t: t[:40], "does not fit config.json"),
        ("vocab.json", None, "vocab.json: no such file; take the whole folder"),
        ("source.spm", None, "source.spm: no such file; take the whole folder"),
        ("target.spm", None, "target.spm: no such file; take the whole folder"),
        ("source.spm", lambda t: "x" + t, "not a SentencePiece model"),
        ("config.json", lambda t: t.replace('"eos_token_id": 0', '"eos_token_id": 999'), "fit"),
        ("model.safetensors", None, "no such file"),
    ],
)  # fmt: skip
def test_a_folder_that_lacks_something_is_named(folder, tmp_path, name, change, says) -> None:
    broken = shutil.copytree(folder, tmp_path / "broken")
    if change is None:
        (broken / name).unlink()
    else:
        text = (broken / name).read_bytes().decode("latin-1")
        (broken / name).write_bytes(change(text).encode("latin-1"))
    with pytest.raises(UserError, match=says):
        import_from(broken, tmp_path / "out")


SHARED = "marian-multi30k-en-fr"


@pytest.mark.parametrize("lines", [60, pytest.param(500, marks=pytest.mark.scale)])
def test_marian_s_own_files_give_marian_s_own_outputs(data_folder: Path, tmp_path, lines) -> None:
    place = data_folder / SHARED
    if not place.is_dir():
        pytest.skip(f"no {SHARED}")
    import_from(place / "marian", tmp_path / "run")
    run = foveate.load(tmp_path / "run")
    read = {
        name: (place / "out" / name).read_text("utf-8").split("\n")[:lines]
        for name in ("source.en", "beam1.fr", "beam6.fr")
    }
    greedy = [str(answer) for answer in run.translate(read["source.en"], beam_size=1)]
    assert greedy == read["beam1.fr"]
    beam = [str(answer) for answer in run.translate(read["source.en"])]
    same = sum(ours == theirs for ours, theirs in zip(beam, read["beam6.fr"], strict=True))
    assert same >= 0.97 * lines  # the others are lines in which Marian wants an unknown piece


def test_an_option_of_marian_that_is_not_supported_is_named(tmp_path: Path) -> None:
    options = "type: transformer\nenc-depth: 1\ndec-depth: 1\ntransformer-heads: 1\n"
    options += "transformer-dim-ffn: 8\ntransformer-ffn-activation: relu\nskip: true\n\0"
    arrays = {"Wemb": np.zeros((5, 4), np.float32)}
    arrays["special:model.yml"] = np.frombuffer(options.encode(), np.int8)
    np.savez(tmp_path / "model.npz", **arrays)
    with pytest.raises(ExchangeError, match="skip: 'true' is not supported"):
        read_marian(tmp_path / "model.npz")
    np.savez(tmp_path / "model.npz", **{"special:model.yml": np.array([{}], dtype=object)})
    with pytest.raises(ExchangeError, match="not a model that Marian wrote"):
        opened(tmp_path)


def tiny_marian(rows: tuple[int, int]) -> dict[str, np.ndarray]:
    """Draw the tensors of a model of Marian's with one layer a side, and a table for each."""
    draw = np.random.default_rng(4)
    size, inner = 8, 16
    options = (
        "type: transformer\nenc-depth: 1\ndec-depth: 1\ntransformer-heads: 2\n"
        f"transformer-dim-ffn: {inner}\ntransformer-ffn-activation: swish\n\0"
    )
    arrays = {"special:model.yml": np.frombuffer(options.encode(), np.int8)}
    for side, count in zip(("encoder", "decoder"), rows, strict=True):
        arrays[f"{side}_Wemb"] = draw.normal(size=(count, size))
        for part in ("self", "context") if side == "decoder" else ("self",):
            for each in "qkvo":
                arrays[f"{side}_l1_{part}_W{each}"] = draw.normal(size=(size, size))
                arrays[f"{side}_l1_{part}_b{each}"] = draw.normal(size=(1, size))
            arrays[f"{side}_l1_{part}_Wo_ln_scale"] = np.ones((1, size))
            arrays[f"{side}_l1_{part}_Wo_ln_bias"] = np.zeros((1, size))
        for name, shape in (("W1", (size, inner)), ("b1", (1, inner)), ("W2", (inner, size)),
                            ("b2", (1, size)), ("ffn_ln_bias", (1, size))):  # fmt: skip
            arrays[f"{side}_l1_ffn_{name}"] = draw.normal(size=shape)
        arrays[f"{side}_l1_ffn_ffn_ln_scale"] = np.ones((1, size))
    arrays["decoder_ff_logit_out_b"] = draw.normal(size=(1, rows[1]))
    return {k: v if k.startswith("special") else v.astype(np.float32) for k, v in arrays.items()}


def marian_folder(place: Path, arrays: dict[str, np.ndarray], **vocabularies: Path) -> Path:
    place.mkdir()
    np.savez(place / "model.npz", **arrays)
    for name, path in vocabularies.items():
        shutil.copy(path, place / f"{name}.spm")
    return place


def test_tables_of_marian_that_are_equal_or_one_are_one_model(tmp_path: Path) -> None:
    """Every way in which Marian ties its three tables, with the same numbers in all of them."""
    pieces = trained(tmp_path)
    count = len(SentencePieceModel.read(pieces).pieces)
    arrays = tiny_marian((count, count))
    del arrays["encoder_Wemb"]
    table = arrays.pop("decoder_Wemb")
    both, output = {"encoder_Wemb": table, "decoder_Wemb": table}, "decoder_ff_logit_out_Wt"
    answers = {}
    for tie, tables in (
        ("all", {"Wemb": table}), ("target", both), ("inputs", {"Wemb": table, output: table}),
        ("none", {**both, output: table}),
    ):  # fmt: skip
        run = foveate.load(marian_folder(tmp_path / tie, {**arrays, **tables}, vocab=pieces))
        assert run.config.model.tie == tie
        answers[tie] = [answer.outputs for answer in run.translate(TEXT, num_hypotheses=3)]
    assert answers["all"] == answers["target"] == answers["inputs"] == answers["none"]


@pytest.mark.parametrize("listed", ["vocabs: [b.spm, a.spm]\n", "vocabs:\n- b.spm\n- a.spm\n", ""])
def test_each_side_of_marian_may_have_its_vocabulary(tmp_path: Path, listed: str) -> None:
    """Listed in decoder.yml, or named as Firefox does, beside a shortlist that is not needed."""
    files, counts = [], []
    for side, rule in (("source", "nmt_nfkc_cf"), ("target", "identity")):
        (tmp_path / side).mkdir()
        files.append(trained(tmp_path / side, rule, size=90 if side == "source" else 45))
        counts.append(len(SentencePieceModel.read(files[-1]).pieces))
    assert counts[0] != counts[1]
    arrays, names = tiny_marian((counts[0], counts[1])), ("b", "a")
    if not listed:
        names = ("srcvocab.enfr", "trgvocab.enfr")
    place = marian_folder(tmp_path / "two", arrays, **dict(zip(names, files, strict=True)))
    if listed:
        (place / "decoder.yml").write_text(f"relative-paths: true\n{listed}beam-size: 3\n")
    (place / "lex.50.50.enfr.s2t.bin").write_bytes(bytes(64))
    run = foveate.load(place)
    for side, tokenizer in zip(("encoder", "decoder"), run.task.tokenizers, strict=True):
        table, rows = run.model.get_submodule(side).embedding.weight, arrays[f"{side}_Wemb"]
        assert tokenizer.vocab_size == len(rows) + 2  # <pad>, which is the start too
        for i in range(4, tokenizer.vocab_size):
            assert torch.equal(table[i], torch.from_numpy(rows[tokenizer.published[i]]))
    check_engine(run, TEXT)


def test_two_vocabularies_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    pieces = trained(tmp_path)
    count = len(SentencePieceModel.read(pieces).pieces)
    vocabularies = {"vocab.en": pieces, "vocab.fr": pieces}
    place = marian_folder(tmp_path / "two", tiny_marian((count, count)), **vocabularies)
    with pytest.raises(ExchangeError, match=r"vocabs: \[SOURCE.spm, TARGET.spm\]"):
        opened(place)
    (place / "decoder.yml").write_text("vocabs:\n  - vocab.fr.spm\n  - vocab.missing.spm\n")
    with pytest.raises(ExchangeError, match=r"vocab\.missing\.spm: no such file"):
        opened(place)
