"""Beginning with the weights of another run: what is taken, what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from foveate.config import ConfigError, parse_tree
from foveate.data.tokenizer import BPE, SPECIALS, Byte, Character, Tokenizer, Unigram
from foveate.errors import UserError
from foveate.run import Run, RunConfig
from foveate.run.start import Start, by_pieces, copy_parts
from foveate.run.training import train
from tolerances import ROW, close


def model(vocabulary: int = 6, size: int = 3, labels: int = 2) -> nn.ModuleDict:
    encoder = nn.ModuleDict(
        {"embedding": nn.Embedding(vocabulary, size), "layer": nn.Linear(size, 4)}
    )
    parts = {"encoder": encoder, "encoder2": nn.Linear(1, 1), "output": nn.Linear(4, labels)}
    return nn.ModuleDict(parts)


def test_the_named_parts_are_taken_and_no_others() -> None:
    inputs, own = model(), model(labels=5)
    before = {name: tensor.clone() for name, tensor in own.state_dict().items()}
    output = copy_parts(Start(run="runs/a", parts=("encoder",)), inputs.state_dict(), own)
    for name, tensor in own.state_dict().items():
        expected = inputs.state_dict() if name.startswith("encoder.") else before
        assert torch.equal(tensor, expected[name]), name
    assert "runs/a" in output and f"{6 * 3 + 3 * 4 + 4} weights" in output
    own.tied = own.output  # the same weights under two names
    for parts, count in ((("output.bias",), 5), (("output", "tied"), 25)):
        said = copy_parts(Start(run="r", parts=parts), own.state_dict(), own)
        assert f", {count} weights" in said
    whole = model()
    copy_parts(Start(run="runs/a"), inputs.state_dict(), whole)  # without parts everything
    assert all(map(torch.equal, whole.state_dict().values(), inputs.state_dict().values()))


@pytest.mark.parametrize(
    ("own", "parts", "message"),
    [
        (model(vocabulary=7), ("encoder",), "6 tokens or labels there, 7 here"),
        (model(size=5), ("encoder",), "runs/a/config.toml"),
        (model(labels=3), (), "output.bias"),
        (model(), ("encoders",), "no 'encoders'; there are encoder, encoder2, output"),
        (nn.ModuleDict({"encoder": nn.Linear(3, 4)}), ("encoder",), "belongs to another model"),
    ],
)
def test_what_does_not_fit_is_refused_whole(own, parts, message) -> None:
    before = {name: tensor.clone() for name, tensor in own.state_dict().items()}
    with pytest.raises(ConfigError, match=message):
        copy_parts(Start(run="runs/a", parts=parts), model().state_dict(), own)
    assert all(torch.equal(t, before[n]) for n, t in own.state_dict().items())


def test_a_vocabulary_that_cannot_be_another_is_refused_with_a_remedy() -> None:
    tokenizer = Unigram.Config(vocab_size=300).build()
    with pytest.raises(ValueError, match=r"unigram cannot be extended.*replace"):
        tokenizer.extend([], tokenizer.config)


LINES = {"old": ["the dog runs", "the cat sleeps"], "new": ["the zebra runs", "a quick zebra"]}


def tree(folder: Path, lines: str, tokenizer: dict[str, Any], start: dict[str, Any]) -> Any:
    for split in ("train", "valid"):
        rows = "".join(f"{line}\t{line}\n" for line in LINES[lines])
        (folder / f"{split}.{lines}.tsv").write_text(rows, encoding="utf-8")
    part = {"kind": "recurrent", "embedding_size": 8, "hidden_size": 8}
    source = str(folder / f"{{split}}.{lines}.tsv")
    task = {"kind": "translation", "source": source, "tokenizer": tokenizer}
    model = {"kind": "encoder_decoder", "encoder": part, "decoder": part}
    fast = {"max_steps": 1, "precision": "fp32", "optimizer": {"kind": "sgd", "lr": 1e-12}}
    plain = {"task": task, "model": model, "train": fast}
    return parse_tree(RunConfig, plain | ({"start": start} if start else {}))


@pytest.fixture
def old(tmp_path: Path) -> Run:
    config = tree(tmp_path, "old", {"kind": "bpe", "vocab_size": 265}, {})
    return train(config, folder=tmp_path / "old")


def rows(run: Run, name: str) -> dict[str, torch.Tensor]:
    table = run.model.state_dict()[name]
    return dict(zip(run.task.source_tokenizer.pieces, table, strict=True))


@pytest.mark.parametrize("vocabulary", ["extend", "replace"])
def test_tokens_of_both_keep_their_vectors(old: Run, tmp_path: Path, vocabulary: str) -> None:
    start = {"run": str(old.path), "vocabulary": vocabulary}
    config = tree(tmp_path, "new", {"kind": "bpe", "vocab_size": 270}, start)
    run = train(config, folder=tmp_path / vocabulary)
    before, after = old.task.source_tokenizer, run.task.source_tokenizer
    if vocabulary == "extend":
        assert after.pieces[: before.vocab_size] == before.pieces
        assert len(before.pieces) < len(after.pieces) <= 270
    for name in ("encoder.stem.embedding.weight", "output.weight"):
        theirs, ours = rows(old, name), rows(run, name)
        both = theirs.keys() & ours.keys()
        assert set(SPECIALS) < both < ours.keys()
        for piece in both:
            close(ours[piece], theirs[piece], terms=ROW)
    for name, tensor in old.model.state_dict().items():
        if name.startswith("encoder.stack"):
            close(run.model.state_dict()[name], tensor, terms=ROW)


RELATIVE = {"like": {"<2cs>": "<2sk>"}}


def test_a_mismatch_names_both_sizes_and_the_remedy(old: Run, tmp_path: Path) -> None:
    config = tree(tmp_path, "new", {"kind": "bpe", "vocab_size": 270}, {"run": str(old.path)})
    with pytest.raises(ConfigError, match=r"265, and 270 .*extend"):
        train(config, folder=tmp_path / "same")
    start = {"run": str(old.path), "vocabulary": "extend"}
    config = tree(tmp_path, "new", {"kind": "bpe", "vocab_size": 265}, start)
    with pytest.raises(ValueError, match=r"has 265 bpe pieces already.*replace"):
        train(config, folder=tmp_path / "more")
    config = tree(tmp_path, "new", {"kind": "bpe", "vocab_size": 270}, start | RELATIVE)
    with pytest.raises(ConfigError, match=r"start.like: .* has no token '<2sk>'"):
        train(config, folder=tmp_path / "run")


@pytest.mark.parametrize("config", [BPE.Config(vocab_size=300), Character.Config(), Byte.Config()])
def test_extending_keeps_ids_and_learns_more(config: Any, tmp_path: Path) -> None:
    tokenizer: Tokenizer = config.build()
    tokenizer.train(LINES["old"] * 3)
    tokenizer.add_tags(["<2fr>"])
    before = tokenizer.pieces[:-1]
    more = config.model_copy(update={"vocab_size": 330}) if config.kind == "bpe" else config
    tokenizer.extend(LINES["new"] * 3, more)
    assert tokenizer.pieces[: len(before)] == before
    assert not tokenizer.tags
    for line in LINES["new"]:
        ids = tokenizer.encode_ids([line])[0]
        assert tokenizer.decode(ids) == line and 0 not in ids
    tokenizer.save(tmp_path / "extended")
    again = Tokenizer.load(tmp_path / "extended")
    assert again.encode_ids(LINES["new"]) == tokenizer.encode_ids(LINES["new"])


WIDE = {"kind": "transformer", "hidden_size": 16, "num_heads": 2, "num_layers": 1, "ffn_size": 20}


def sided(folder: Path, task: str = "translation", **changed: Any) -> dict[str, Any]:
    """A tiny Transformer of a task; ``changed`` are fields of its encoder and decoder."""
    plain = tree(folder, "old", {"kind": "bpe", "vocab_size": 265}, {}).tree()
    part = WIDE | changed
    plain["model"] = {"kind": "encoder_decoder", "encoder": part, "decoder": part}
    if task != "translation":
        plain["task"] = {"kind": task, "source": plain["task"]["source"], "tokenizer": "byte"}
        kind = {"masked_language": "masked_language_model", "classification": "classifier"}[task]
        plain["model"] = {"kind": kind, "encoder": part}
        del plain["objective"]
    return plain


OTHER = "belongs to another model"
MISMATCHES: dict[str, tuple[dict[str, Any], str]] = {
    "width": ({"hidden_size": 8}, r"\(265, 16\) in .* and \(265, 8\) here|is \(16,\) in"),
    "layers": ({"num_layers": 2}, r"belongs to another model: it lacks \['decoder\.layers\.1"),
    "ffn": ({"ffn_size": 24}, r"\(20, 16\) in .* and \(24, 16\) here|is \(20,\) in"),
    "heads": ({"num_heads": 4}, r"num_heads is 2 in .* and 4 here: set the value of that run"),
    "kind": ({}, OTHER),
    "task": ({"task": "classification"}, f"{OTHER}|classification cannot extend"),
    "masked": ({"task": "masked_language"}, f"{OTHER}|neither another vocabulary|cannot extend"),
}


@pytest.mark.parametrize("vocabulary", ["same", "extend", "replace"])
def test_every_mismatch_is_one_sentence_with_its_remedy(tmp_path: Path, vocabulary: str) -> None:
    """In width, layers, heads, kind and task; a run that fits all the same says what differs."""
    old = train(parse_tree(RunConfig, sided(tmp_path)), folder=tmp_path / "old").path
    start = {"run": str(old), "vocabulary": vocabulary}
    for name, (changed, message) in MISMATCHES.items():
        plain = sided(tmp_path, **changed)
        if name == "kind":
            part = {"kind": "recurrent", "hidden_size": 16, "embedding_size": 16}
            plain["model"] |= {"encoder": part, "decoder": part}
        plain["task"]["tokenizer"] = {"kind": "bpe"} if vocabulary == "same" else "byte"
        if vocabulary == "extend":
            plain["task"]["tokenizer"] = {"kind": "bpe", "vocab_size": 270}
        config = parse_tree(RunConfig, plain | {"start": start})
        with pytest.raises(UserError, match=message):
            train(config, folder=tmp_path / name)


def test_settings_without_weights_that_differ_are_said(tmp_path: Path, capsys: Any) -> None:
    old = train(parse_tree(RunConfig, sided(tmp_path)), folder=tmp_path / "old").path
    plain = sided(tmp_path, feed_forward={"kind": "gelu"}) | {"start": {"run": str(old)}}
    train(parse_tree(RunConfig, plain), folder=tmp_path / "new")
    assert f"kind is relu in {old} and gelu here" in capsys.readouterr().err


def test_rows_go_by_the_names_of_tokens_and_new_ones_begin_like_known_ones() -> None:
    table = "encoder.stem.embedding.weight"
    inputs = {table: torch.tensor([[1.0], [2.0], [4.0], [8.0]])}
    own = {table: torch.full((6, 1), -1.0)}
    theirs = {"encoder": ["a", "ab", "c", "<2de>"]}
    ours = {"encoder": ["abc", "cab", "<2cs>", "<2sk>", "ad", "c"]}
    result = by_pieces(inputs, own, theirs, ours, {"<2cs>": "<2de>"})[table]
    assert result.flatten().tolist() == [3.0, 3.0, 8.0, -1.0, -1.0, 4.0]
    assert own[table].flatten().tolist() == [-1.0] * 6
