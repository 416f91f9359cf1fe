"""``foveate align`` on files of our own, with aligners, a small run, and gold links."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foveate.align.aer import Gold, choose
from foveate.engine.links import Head, read_pharaoh
from foveate.run import load
from foveate.run.linking import word_maps
from small_runs import Call
from tolerances import close, differ, near

CONFIG = """
[task]
kind = "translation"
source = "{folder}/{{split}}.en"
target = "{folder}/{{split}}.fr"
tokenizer = {{ kind = "bpe", vocab_size = 290 }}

[model]
kind = "encoder_decoder"
encoder = {{ kind = "transformer", hidden_size = 16, num_heads = 2, num_layers = 1, ffn_size = 16 }}
decoder = {{ kind = "transformer", hidden_size = 16, num_heads = 2, num_layers = 2, ffn_size = 16 }}

[train]
max_steps = 1
batch_tokens = 256
precision = "fp32"
"""
ENGLISH = ["the house", "the book", "a book", "the old house runs"]
FRENCH = ["la maison", "le livre", "un livre", "la vieille maison court"]
GOLD = ["1-1 2-2", "1-1 2-2", "1-1 2p2", "1-1 2-2 3-3 4-4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sides, gold links, and a run that has hardly been trained."""
    folder = tmp_path_factory.mktemp("align")
    for name, lines in (("train.en", ENGLISH), ("train.fr", FRENCH), ("gold.txt", GOLD)):
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    for name in ("en", "fr"):
        (folder / f"valid.{name}").write_bytes((folder / f"train.{name}").read_bytes())
    (folder / "small.toml").write_text(CONFIG.format(folder=folder), encoding="utf-8")
    from foveate.run.training import train

    train(folder / "small.toml", folder=folder / "run")
    return folder


def sides(folder: Path) -> tuple[Path, Path]:
    return folder / "train.en", folder / "train.fr"


def test_an_aligner_learns_from_the_files_themselves(folder: Path, call: Call) -> None:
    code, out, err = call("align", "hmm", *sides(folder), "--symmetrize", "intersection")
    assert code == 0, err
    assert out.splitlines()[1] == "0-0 1-1"
    assert len(out.splitlines()) == 4
    assert "hmm: 4 pairs, 5 iterations" in err


def test_links_are_judged(folder: Path, call: Call) -> None:
    links = folder / "links"
    links.write_text("0-0 1-1\n0-0\n0-0 1-1\n0-1\n", encoding="utf-8")
    # 6 links, 5 of them possible, 4 of them sure, 9 sure in all
    code, out, err = call("align", "evaluate", links, folder / "gold.txt", "--json")
    assert code == 0, err
    figures = json.loads(out)["figures"]
    assert figures["precision"] == pytest.approx(5 / 6)
    assert figures["recall"] == pytest.approx(4 / 9)
    assert figures["aer"] == pytest.approx(1 - 9 / 15)
    code, out, err = call("align", "evaluate", links, links)
    assert (code, "aer          0.00 %" in out) == (0, True)
    assert f"gold links count words from 0 ({links}:1: 0-0)" in err


@pytest.mark.parametrize("option", ["", "--pretokenised", "--no-pretokenised"])
@pytest.mark.parametrize("tokenised", [False, True])
def test_tokenised_texts_are_detected(tmp_path, call: Call, option: str, tokenised: bool) -> None:
    """The links tell how many words there are: the last one is linked."""
    text = "yes , i say !! ." if tokenised else "yes, i say !!."
    path = tmp_path / "text"
    path.write_text(f"{text}\n{text[:-1].strip()}\n" * 3, encoding="utf-8")
    code, out, err = call("align", "ibm1", path, path, *filter(None, [option]))
    assert code == 0, err
    blanks = option == "--pretokenised" or (tokenised and not option)
    words = len(text.split()) if blanks else 7
    linked = {int(side) for link in out.split() for side in link.split("-")}
    assert linked <= set(range(words)) and words - 1 in linked
    expected = {
        (True, ""): "words: split at spaces, since the texts are tokenised (18 of 18 full "
        "stops and commas are separate); to split them as plain text: --no-pretokenised\n",
        (False, ""): "words: plain text (0 of 18 full stops and commas are separate); if they are "
        "tokenised: --pretokenised\n",
    }
    assert err.partition("ibm1")[0] == expected.get((tokenised, option), "")


def test_links_and_gold_have_as_many_lines(tmp_path: Path, call: Call) -> None:
    links, gold = tmp_path / "links", tmp_path / "gold"
    gold.write_text("1-1 2-2\n" * 40, encoding="utf-8")
    links.write_text("0-0\n", encoding="utf-8")
    code, _, err = call("align", "evaluate", links, gold)
    assert (code, f"{links} has 1 lines, {gold} 40" in err) == (2, True)


def test_directions_are_joined(folder: Path, call: Call) -> None:
    forward, backward, out = (folder / name for name in ("f", "b", "o"))
    forward.write_text("0-0 1-2\n", encoding="utf-8")
    backward.write_text("0-0 2-1 3-3\n", encoding="utf-8")  # target-source
    arguments = forward, backward, "--method", "intersection", "--out", out
    assert call("align", "symmetrize", *arguments)[0] == 0
    assert out.read_text() == "0-0 1-2\n"
    code, _, err = call("align", "symmetrize", forward, backward, "--method", "magic")
    assert code == 2
    assert "no method 'magic'; there are: intersection, union, grow-diag" in err


def test_a_run_links_words_by_the_head_that_is_asked_for(folder: Path, call: Call) -> None:
    run = folder / "run"
    answers = set()
    for choice in ([], ["--layer", 0, "--head", 1], ["--layer", 1, "--after-reading"]):
        code, out, err = call("align", run, *sides(folder), *choice)
        assert code == 0, err
        assert len(out.splitlines()) == 4
        for line, english, french in zip(out.splitlines(), ENGLISH, FRENCH, strict=True):
            for s, t in read_pharaoh(line):
                assert s < len(english.split())
                assert t < len(french.split())
        answers.add(out)
    assert len(answers) > 1
    code, _, err = call("align", run, *sides(folder), "--layer", 7)
    assert code == 2
    assert "layer 7 of the run's cross-attention: there are 2 layers" in err
    assert "there are 2" in call("align", run, *sides(folder), "--head", 7)[2]


def test_a_run_that_foveate_ships_links_words(folder, call, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call("align", "packaged/en-fr", *sides(folder))
    assert code == 0, err
    assert len(out.splitlines()) == len(ENGLISH)


def test_a_saved_head_may_be_read_after_the_word(folder: Path, call: Call, tmp_path: Path) -> None:
    """`--after-reading` alone asks for other rows, not for another head."""
    run = tmp_path / "run"
    shutil.copytree(folder / "run", run)
    named = ["--layer", 0, "--head", 1]
    assert call("align", run, *sides(folder), *named, "--save")[0] == 0
    later = call("align", run, *sides(folder), "--after-reading")[1]
    assert later == call("align", run, *sides(folder), *named, "--after-reading")[1]


def test_the_best_head_is_chosen_and_kept(folder: Path, call: Call) -> None:
    run = folder / "run"
    code, _, err = call("align", run, *sides(folder), "--gold", folder / "gold.txt", "--save")
    assert code == 0, err
    assert "error rate" in err
    saved = json.loads((run / "aligned_head.json").read_text("utf-8"))
    head = Head.load(run, Head())
    assert (head.layer, head.head) == (saved["layer"], saved["head"])
    loaded = load(run)
    pairs = list(zip(ENGLISH, FRENCH, strict=True))
    (maps, *_) = word_maps(loaded.task, loaded.model, pairs)
    assert loaded.links(pairs[:1]) == [head.links(maps)]  # `translate --alignments` reads the same
    code, plain, _ = call("align", run, *sides(folder))
    assert plain.splitlines()[0] == " ".join(f"{s}-{t}" for s, t in sorted(head.links(maps)))
    (run / "aligned_head.json").unlink()
    (folder / "ibm").write_text("0-0 1-1\n" * 4, encoding="utf-8")
    assert call("align", run, *sides(folder), "--agree-with", folder / "ibm")[0] == 0


def test_what_is_wrong_is_said(folder: Path, call: Call) -> None:
    run, gold = folder / "run", folder / "gold.txt"
    for arguments, message in (
        (("nobody", *sides(folder)), "neither the folder of a run nor one of agreement, hmm"),
        (("ibm1", *sides(folder), "--layer", 1), "--layer: ibm1 is not a run"),
        ((run, *sides(folder), "--symmetrize", "union"), "--symmetrize: a run is trained"),
        ((run, *sides(folder), "--layer", 1, "--gold", gold), "choose the head by one of"),
        ((run, *sides(folder), "--agree-with", folder / "one"), "one has 1 lines of links, "),
        (
            (run, *sides(folder), "--gold", folder / "far"),
            "far:2: a link to word 3, counted from 1",
        ),
    ):
        (folder / "one").write_text("0-0\n", encoding="utf-8")
        (folder / "far").write_text("1-1\n1-3\n\n\n", encoding="utf-8")
        code, _, err = call("align", *arguments)
        assert (code, message in err) == (2, True), err


def test_the_tag_of_a_language_is_no_word(folder: Path, call: Call, tmp_path: Path) -> None:
    """Links are those of the lines as they stand in the files, packed or not."""
    from foveate.engine.packed import load as load_packed
    from foveate.run.pack import pack
    from foveate.run.training import train

    lines = "".join(f"{s}\t{t}\n" for s, t in zip(ENGLISH, FRENCH, strict=True))
    for split in ("train", "valid"):
        (tmp_path / f"{split}.tsv").write_text(lines, encoding="utf-8")
    plain = [f'source = "{folder}/{{split}}.en"\n', f'target = "{folder}/{{split}}.fr"\n']
    config = (
        CONFIG.format(folder=folder)
        .replace("".join(plain), "")
        .replace(
            "[model]",
            f"""
[[task.corpora]]
source = "{tmp_path}/{{split}}.tsv"
tag = "<2fr>"

[model]""",
        )
    )
    (tmp_path / "tagged.toml").write_text(config, encoding="utf-8")
    run = train(tmp_path / "tagged.toml", folder=tmp_path / "run")
    code, _, err = call("align", run.path, *sides(folder))
    assert code == 2 and "choose one (to): fr" in err
    code, out, _ = call("align", run.path, *sides(folder), "--to", "fr", "--layer", 0)
    pairs = [(f"<2fr> {s}", t) for s, t in zip(ENGLISH, FRENCH, strict=True)]
    links = run.links(pairs, Head(0))
    assert code == 0 and [read_pharaoh(line) for line in out.splitlines()] == links
    assert all(i < len(s.split()) for s, each in zip(ENGLISH, links, strict=True) for i, _ in each)
    tagged = tmp_path / "tagged.en"  # tags in place of --to
    tagged.write_text("".join(f"<2fr> {text}\n" for text in ENGLISH), encoding="utf-8")
    assert call("align", run.path, tagged, [*sides(folder)][1], "--layer", 0)[1] == out
    gold = "--gold", folder / "gold.txt"
    code, _, err = call("align", run.path, *sides(folder), "--to", "fr", *gold)
    assert code == 0, err
    packed = load_packed(pack(run, tmp_path / "m.safetensors"))
    assert packed.links(pairs, Head(0)) == links
    (answer,) = packed.translate(ENGLISH[:1], to="fr", beam_size=1)
    assert answer.source == ENGLISH[0]
    assert answer.alignment() == run.translate(ENGLISH[:1], to="fr", beam_size=1)[0].alignment()


def test_words_of_a_text_cut_by_others(folder: Path) -> None:
    """A word is a column whatever its pieces; after reading its row is one later."""
    run = load(folder / "run")
    pair = [("the house .", "la maison .")]
    from foveate.data.words import split_blanks

    choices: dict[str, Any] = {"cut": split_blanks}
    produced = next(word_maps(run.task, run.model, pair, **choices))
    read = next(word_maps(run.task, run.model, pair, rows="read", **choices))
    record = run.explain(*pair[0])
    for name, maps in produced.items():
        assert maps.shape == read[name].shape == (2, 3, 4)
        assert maps.sum(axis=2) == near(np.ones((2, 3)))
        close(maps, record.maps[name][:, :3])
        assert differ(maps, read[name])


def test_a_head_is_chosen_by_its_error_rate() -> None:
    straight, crossed = np.eye(2, 3, dtype=np.float32), np.eye(2, 3, dtype=np.float32)[::-1]
    maps = {"a": np.stack([crossed, crossed]), "b": np.stack([crossed, straight])}
    gold = [Gold({(0, 0), (1, 1)}, {(0, 0), (1, 1)})]
    (head, best), (_, other), *_ = choose([maps], gold, "read")
    assert head == Head(1, 1, "read")
    assert (best.aer, other.aer) == (0, 1)
    with pytest.raises(ValueError, match="no attention to the source"):
        choose([{}], gold)
