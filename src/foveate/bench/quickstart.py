"""The corpora and configs of the quickstart, and how well a head of its model aligns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from foveate.align.aer import Gold, LinkCounts, rank_heads
from foveate.align.ibm import AgreementAligner
from foveate.data.synthetic import write
from foveate.data.words import words
from foveate.engine.links import Maps, read_pharaoh
from foveate.files import split_lines, write_text
from foveate.run import Run
from foveate.train.journal import clock, read

HELD_OUT = ("valid", "test")
LINKED = 5000  # training pairs, about, of which its statistical aligner learns


class QuickstartCorpus(NamedTuple):
    """A corpus of the quickstart, and the texts that describe it."""

    name: str  # of its config and its folder
    about: str
    held_out: str
    sizes: Mapping[str, int]  # sentences
    good: float  # BLEU; the whole training has far more
    expected: str  # how long it takes
    sentence: str  # to type next


CORPORA = {  # of `foveate.data.synthetic`
    "everyday": QuickstartCorpus(
        "quickstart", "everyday sentences of Tatoeba (tatoeba.org, CC BY 2.0 FR)",
        "held-out sentences", {"train": 90_362, "valid": 300, "test": 1000}, 25.0,
        "2,400 steps: five minutes", "Where is the station?",
    ),
    "short": QuickstartCorpus(
        "grammar", "an English–French grammar, with the true word alignments",
        "held-out sentences, with combinations that training never showed",
        {"train": 60_000, "valid": 200, "test": 500}, 50.0, "2,000 steps: two minutes",
        "She closes the old window.",
    ),
}  # fmt: skip


def prepared(folder: Path, corpus: str, sizes: Mapping[str, int]) -> Path:
    """Write a corpus into ``folder/data``, and its config beside it; return the config's path."""
    name = CORPORA[corpus].name
    write(folder / "data", sizes, corpus)
    template = files("foveate").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    write_text(folder / f"{name}.toml", template.replace("{folder}", folder.as_posix()))
    return folder / f"{name}.toml"


def why_poor(run: Run, bleu: float, good: float, resume: str) -> str:
    """Return why the translations are poor, and how to resume; "" if they are not."""
    if bleu >= good:
        return ""
    last = read(run.path)[-1]
    step, seconds = last["step"], float(last["seconds"])
    all_steps = run.config.train.max_steps or 0
    if step >= all_steps:
        return f"BLEU {bleu:.2f} is poor: {all_steps:,} steps are too few; resume with more"
    needed = seconds / max(1, step) * all_steps
    return (
        f"BLEU {bleu:.2f} is poor, for only {step:,} of {all_steps:,} steps were done in "
        f"{clock(seconds)}: this machine is slow, or other programs use it. All steps take about "
        f"{clock(needed)} at this pace; to go on: {resume} "
        f"train.max_minutes={int(needed / 60) + 1}"
    )


def judge_alignment(run: Run, data: Path) -> tuple[str, int, LinkCounts]:
    """Choose the cross-attention head that aligns best on validation data; measure it on test data.

    Links belong to the reference, so the model reads each reference, not its own answer. They are
    gold links, or if there are none those of a statistical aligner.
    """
    gold = _gold(run, data)
    name, head, _ = rank_heads(_explained(run, "valid"), gold["valid"])[0]
    chosen = ({name: maps[name][head : head + 1]} for maps in _explained(run, "test"))
    return name, head, rank_heads(chosen, gold["test"])[0][2]


def _explained(run: Run, split: str) -> Iterator[Maps]:
    """Yield the cross-attention maps of each pair of a split, between words."""
    records = (run.explain(*pair, units="words") for pair in zip(*run.pairs(split), strict=True))
    blocks = "cross_attention"
    return ({n: r.maps[n][:, :-1, :-1] for n in r.names(blocks)} for r in records)


def _gold(run: Run, data: Path) -> dict[str, list[Gold]]:
    """Return the links of the validation and the test data."""
    if (data / "test.align").exists():
        texts = {name: (data / f"{name}.align").read_text("utf-8") for name in HELD_OUT}
        links = {name: list(map(read_pharaoh, split_lines(text))) for name, text in texts.items()}
    else:
        pairs = {
            name: [(words(s), words(t)) for s, t in zip(*run.pairs(name), strict=True)]
            for name in ("train", *HELD_OUT)
        }
        aligner = AgreementAligner.Config().build()
        learnt = pairs["train"][:: max(1, len(pairs["train"]) // LINKED)]
        aligner.train([*learnt, *pairs["valid"], *pairs["test"]])
        links = {name: aligner.align(pairs[name]) for name in HELD_OUT}
    return {name: [Gold(each, each) for each in links[name]] for name in HELD_OUT}
