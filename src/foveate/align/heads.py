"""The cross-attention head of a run that aligns words best."""

from collections.abc import Iterator
from pathlib import Path

from foveate.align.aer import Gold, LinkCounts, choose, judge
from foveate.align.ibm import AgreementAligner
from foveate.data.words import words
from foveate.engine.links import Head, Maps, link_lines, read_pharaoh
from foveate.run import Run
from foveate.run.passes import word_maps
from foveate.tasks.translation import Translation

HELD_OUT = ("valid", "test")
LINKED = 5000  # training pairs, about, from which the statistical aligner learns


def judge_alignment(run: Run, data: Path) -> tuple[Head, LinkCounts]:
    """Choose the cross-attention head that aligns best on validation data; measure it on test data.

    Links belong to the reference, so the model reads each reference, not its own answer. They are
    gold links, or if there are none those of a statistical aligner.
    """
    gold = _gold(run, data)
    head, _ = choose(_maps(run, "valid"), gold["valid"])[0]
    return head, judge(list(map(head.links, _maps(run, "test"))), gold["test"])


def _maps(run: Run, split: str) -> Iterator[Maps]:
    """Yield the cross-attention maps of each pair of a split, between words."""
    pairs = list(zip(*run.pairs(split), strict=True))
    return word_maps(run.need(Translation, "align"), run.model, pairs)


def _gold(run: Run, data: Path) -> dict[str, list[Gold]]:
    """Return the links of the validation and the test data."""
    if (data / "test.align").exists():
        lines = {name: link_lines(data / f"{name}.align") for name in HELD_OUT}
        links = {name: list(map(read_pharaoh, own)) for name, own in lines.items()}
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
