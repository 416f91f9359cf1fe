"""``foveate align`` on files of our own, with aligners, a small run, and gold links."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from foveate.data.words import split_blanks
from foveate.documents.memory import aligner
from foveate.engine.links import Head, read_pharaoh
from foveate.engine.packed import load as load_packed
from foveate.run import load
from foveate.run.pack import pack
from foveate.run.passes import word_maps
from foveate.run.training import train
from foveate.serve.batching import PairOperation
from small_runs import CONFIGS, Call, config_file
from tolerances import close, differ, near

CHOICES = ["task.tokenizer={kind=bpe, vocab_size=290}"]
ENGLISH = ["the house", "the book", "a book", "the old house runs"]
FRENCH = ["la maison", "le livre", "un livre", "la vieille maison court"]
GOLD = ["1-1 2-2", "1-1 2-2", "1-1 2p2", "1-1 2-2 3-3 4-4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("align")
    pairs = [f"{s}\t{t}" for s, t in zip(ENGLISH, FRENCH, strict=True)]
    files = {"train.en": ENGLISH, "train.fr": FRENCH, "gold.txt": GOLD}
    for name, lines in (files | {f"pairs.{s}.tsv": pairs for s in ("train", "valid")}).items():
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    train(config_file(folder, CONFIGS["transformer"], 1), CHOICES, folder / "run")
    return folder


def sides(folder: Path) -> tuple[Path, Path]:
    return folder / "train.en", folder / "train.fr"


def test_an_aligner_learns_from_the_files_themselves(folder: Path, call: Call) -> None:
    code, out, err = call("align", "hmm", *sides(folder), "--symmetrize", "intersection")
    assert code == 0, err
    assert out.splitlines()[1] == "0-0 1-1"
    assert len(out.splitlines()) == 4
    assert "hmm: 4 pairs, 5 iterations" in err
    forward, backward = (folder / name for name in ("f", "b"))
    forward.write_text("0-0 1-2\n", encoding="utf-8")
    backward.write_text("0-0 2-1 3-3\n", encoding="utf-8")  # target-source
    arguments = forward, backward, "--method", "intersection", "--out", folder / "o"
    assert call("align", "symmetrize", *arguments)[0] == 0
    assert (folder / "o").read_text() == "0-0 1-2\n"


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


def test_a_run_links_words_by_the_head_that_is_asked_for(folder: Path, call: Call) -> None:
    answers = set()
    for choice in ([], ["--layer", 0, "--head", 1], ["--layer", 1, "--after-reading"]):
        code, out, err = call("align", folder / "run", *sides(folder), *choice)
        assert code == 0, err
        for line, english, french in zip(out.splitlines(), ENGLISH, FRENCH, strict=True):
            for s, t in read_pharaoh(line):
                assert s < len(english.split()) and t < len(french.split())
        answers.add(out)
    assert len(answers) > 1
    assert "there are 2" in call("align", folder / "run", *sides(folder), "--head", 7)[2]


def test_a_run_that_foveate_ships_links_words(folder, call, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call("align", "packaged/en-fr", *sides(folder))
    assert (code, len(out.splitlines())) == (0, len(ENGLISH)), err


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
    (folder / "one").write_text("0-0\n", encoding="utf-8")
    for arguments, message in (
        (("ibm1", *sides(folder), "--layer", 1), "--layer: ibm1 is not a run"),
        ((run, *sides(folder), "--symmetrize", "union"), "--symmetrize: a run is trained"),
        ((run, *sides(folder), "--layer", 1, "--gold", gold), "choose the head by one of"),
        ((run, *sides(folder), "--agree-with", folder / "one"), "one has 1 lines of links, "),
    ):
        code, _, err = call("align", *arguments)
        assert (code, message in err) == (2, True), err


def test_the_tag_of_a_language_is_no_word(folder: Path, call: Call, tmp_path: Path) -> None:
    """Links are those of the lines as they stand in the files, packed or not."""
    corpora = f'task.corpora=[{{source="{folder}/pairs.{{split}}.tsv", tag="<2fr>"}}]'
    text = (folder / "config.toml").read_text("utf-8")
    text = "".join(line for line in text.splitlines(True) if not line.startswith("source = "))
    (tmp_path / "tagged.toml").write_text(text, "utf-8")
    run = train(tmp_path / "tagged.toml", [*CHOICES, corpora], tmp_path / "run")
    code, _, err = call("align", run.path, *sides(folder))
    assert code == 2 and "choose one (to): fr" in err
    code, out, _ = call("align", run.path, *sides(folder), "--to", "fr", "--layer", 0)
    pairs = [(f"<2fr> {s}", t) for s, t in zip(ENGLISH, FRENCH, strict=True)]
    links = run.links(pairs, Head(0))
    assert code == 0 and [read_pharaoh(line) for line in out.splitlines()] == links
    assert all(i < len(s.split()) for s, each in zip(ENGLISH, links, strict=True) for i, _ in each)
    tagged = tmp_path / "tagged.en"  # tags in place of --to
    tagged.write_text("".join(f"<2fr> {text}\n" for text in ENGLISH), encoding="utf-8")
    assert call("align", run.path, tagged, sides(folder)[1], "--layer", 0)[1] == out
    gold = "--gold", folder / "gold.txt"
    code, _, err = call("align", run.path, *sides(folder), "--to", "fr", *gold)
    assert code == 0, err
    packed = load_packed(pack(run, tmp_path / "m.safetensors"))
    assert packed.links(pairs, Head(0)) == links
    (answer,) = packed.translate(ENGLISH[:1], to="fr", beam_size=1)
    assert answer.source == ENGLISH[0]
    assert answer.alignment() == run.translate(ENGLISH[:1], to="fr", beam_size=1)[0].alignment()
    (named,) = run.translate(["the house"], to="fr", prefix="la maison", beam_size=1)
    assert (named.source, named.json()["source"]) == ("the house", "the house")
    assert named.alignment() and named.record() is not None
    assert {s for s, _ in named.alignment()} <= {0, 1}
    (written,) = run.translate(["<2fr> the house"], prefix="la maison", beam_size=1)
    assert (written.source, written.alignment()) == ("<2fr> the house", named.alignment())
    (maps,) = word_maps(run.task, run.model, pairs[:1])
    for weights in maps.values():
        assert weights.shape[1:] == (2, 3)  # the, house and the end
        assert (weights.sum(axis=2) < 0.99).all()  # the rest is of the tag
    links = aligner(run, to="fr")([("the house", "la maison")])
    assert links == [sorted(run.links(pairs[:1])[0])]
    plan = PairOperation("fr").plan(run, [("the house", "la maison")], 1000)
    assert plan.answer([("the house", "la maison")], lambda: False) == links


def test_words_of_a_text_cut_by_others(folder: Path) -> None:
    """A word is a column whatever its pieces; after reading its row is one later."""
    run = load(folder / "run")
    pair = ("the house .", "la maison .")
    produced, read = (
        next(word_maps(run.task, run.model, [pair], cut=split_blanks, **rows))
        for rows in ({}, {"rows": "read"})
    )
    record = run.explain(*pair)
    for name, maps in produced.items():
        assert maps.shape == read[name].shape == (2, 3, 4)
        assert maps.sum(axis=2) == near(np.ones((2, 3)))
        close(maps, record.maps[name][:, :3])
        assert differ(maps, read[name])
