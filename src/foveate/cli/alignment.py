"""The verbs of word alignment: files in, Pharaoh links out.

Does not live here: the command line (`foveate.cli.align`), aligners and measures (`foveate.align`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import gt
from pathlib import Path
from typing import Any, Literal, TextIO

from foveate.align.aer import (
    METHODS,
    Gold,
    Head,
    Links,
    RankedHead,
    Rows,
    choose,
    judge,
    link_lines,
    read_gold,
    read_pharaoh,
    symmetrize,
    write_pharaoh,
)
from foveate.align.ibm import Aligner, Pair
from foveate.cli.streams import as_text
from foveate.config import ConfigError, kinds
from foveate.data.catalogue import find
from foveate.data.text import TextData, read_pairs
from foveate.data.words import CUTS, marks_apart, split_blanks, split_words
from foveate.files import replace_file
from foveate.kinds import load_kinds

Found = tuple[list[Links], list[str]]  # the links of each pair, and what there is to say


@dataclass(frozen=True)
class Files:
    """Two line-aligned files and what counts as a word in them; None: see `resolved`."""

    source: Path
    target: Path
    words: Literal["text", "blanks"] | None = None

    def texts(self) -> list[tuple[str, str]]:
        """The pairs of lines. Raises ``DataError`` where a line has no partner."""
        return _texts(self.source, self.target)

    def resolved(self, texts: Sequence[tuple[str, str]]) -> tuple[Files, list[str]]:
        """The same with ``words`` chosen: "blanks" where the texts look tokenised.

        The second value says what was chosen, and why, where the choice makes a difference.
        """
        sides = [side for pair in texts for side in pair]
        if self.words is not None or all(split_words(s) == split_blanks(s) for s in sides):
            return replace(self, words=self.words or "text"), []
        apart, count = marks_apart(sides)
        marks = f"{apart:,} of {count:,} full stops and commas stand alone"
        if apart > 0.9 * count:
            chosen = f"tokens between blanks, since the texts are tokenised ({marks}); "
            return replace(self, words="blanks"), [f"words: {chosen}{OVERRIDES['blanks']}"]
        return replace(self, words="text"), [f"words: plain text ({marks}); {OVERRIDES['text']}"]

    def cut(self, texts: Sequence[tuple[str, str]]) -> list[Pair]:
        """The words of both sides of each pair."""
        spans = CUTS[self.words or "text"]
        return [([s[a:b] for a, b in spans(s)], [t[a:b] for a, b in spans(t)]) for s, t in texts]


OVERRIDES = {
    "text": "if they are tokenised: --pretokenised",
    "blanks": "to split them as plain text: --no-pretokenised",
}


@dataclass(frozen=True)
class By:
    """How the head of a run is chosen: named, by gold, by other links, or as the run has saved."""

    layer: int | None = None
    head: int | None = None
    gold: Path | None = None
    agree_with: Path | None = None
    rows: Rows = "produced"

    def reference(self) -> list[Gold] | None:
        """What heads are compared with, if anything. Raises ``ConfigError`` where two ways are."""
        named = self.layer is not None or self.head is not None
        if sum((named, self.gold is not None, self.agree_with is not None)) > 1:
            raise ConfigError("choose the head by one of --layer/--head, --gold and --agree-with")
        if self.gold is not None:
            return read_gold(find(self.gold))
        if self.agree_with is not None:
            return [Gold(links, links) for links in read_links(self.agree_with)]
        return None

    def check(self, reference: Sequence[Gold], files: Files, pairs: Sequence[Pair]) -> None:
        """Raise ``ConfigError`` where the reference has other pairs, or words, than the files."""
        path, first = (self.agree_with, 0) if self.gold is None else (self.gold, 1)
        if len(reference) != len(pairs):
            raise ConfigError(
                f"{path} has {len(reference):,} lines of links, {files.source} {len(pairs):,}: "
                "line n of each must be the same pair"
            )
        for number, (gold, words) in enumerate(zip(reference, pairs, strict=True), 1):
            for link in sorted(gold.possible):
                for i, side, file in zip(link, words, (files.source, files.target), strict=True):
                    if i >= len(side):
                        raise ConfigError(
                            f"{path}:{number}: a link to word {i + first}, counted from {first}, "
                            f"but {file}:{number} has {len(side)} words; "
                            + OVERRIDES[files.words or "text"]
                        )


def is_aligner(name: str) -> bool:
    """Whether a name is that of a statistical aligner, and no folder's."""
    load_kinds()
    return name in kinds("aligner")["aligner"] and not Path(name, "config.toml").exists()


def refuse(why: str, **options: Any) -> None:
    """Raise ``ConfigError`` for the first option that is given though it means nothing here."""
    for name, value in options.items():
        if value:
            raise ConfigError(f"--{name.replace('_', '-')}: {why}; leave it out")


def by_aligner(
    name: str, files: Files, train_on: Sequence[Path], method: str | None = None
) -> Found:
    """Train an aligner of a kind on the files, and on more, and link the words of the files."""
    tree: dict[str, Any] = {"kind": name}
    if method is not None:
        known(method)
        tree = {"kind": "symmetrised", "aligner": tree, "method": method}
    aligner = Aligner.Config.parse(tree).build()
    texts = files.texts()
    files, notes = files.resolved(texts)
    pairs = files.cut(texts)
    more = files.cut(_texts(*train_on)) if train_on else []
    history = aligner.train(pairs + more)
    said = f"{name}: {len(pairs) + len(more):,} pairs, {len(history)} iterations"
    said += f", log p {history[-1]:,.0f}" if history else ""
    return aligner.align(pairs), [*notes, said]


def by_run(folder: Path, checkpoint: str, files: Files, by: By, save: bool = False) -> Found:
    """The links of a head of a run, which is chosen first; ``save`` keeps it for the run."""
    from foveate.run import load
    from foveate.tasks.base import Aligns

    if not folder.is_dir():
        names = ", ".join(sorted(kinds("aligner")["aligner"]))
        raise ConfigError(f"{folder} is neither the folder of a run nor one of: {names}")
    run, texts = load(folder, checkpoint), files.texts()
    task = run.need(Aligns, "align")
    files, said = files.resolved(texts)
    reference = by.reference()
    layer = -1 if by.layer is None else by.layer
    own = Head.load(folder, task.head)
    head = own if by == By() else Head(layer, by.head, by.rows)

    def maps() -> Any:
        return task.word_maps(run.model, texts, head.rows, cut=CUTS[files.words or "text"])

    if reference is not None:
        by.check(reference, files, files.cut(texts))
        best = choose(maps(), reference, head.rows)[0]
        head = best.head
        said.append(_described(best))
    if save:
        head.save(folder, "named" if reference is None else said[-1])
        said.append(f"saved: {folder} aligns with layer {head.layer}, head {head.head}")
    return [head.links(m) for m in maps()], said


def evaluation(
    links: Path, gold: Path, reference_format: str, as_json: bool
) -> tuple[str, list[str]]:
    """Precision, recall and error rate of links against gold ones, and what makes them doubtful."""
    if reference_format not in ("gold", "pharaoh"):
        raise ConfigError(f"--reference-format {reference_format}: write gold or pharaoh")
    found = read_links(links)
    true = (
        read_gold(find(gold))
        if reference_format == "gold"
        else [Gold(each, each) for each in read_links(gold)]
    )
    if len(found) != len(true):
        raise ConfigError(
            f"{links} has {len(found):,} lines, {gold} {len(true):,}: line n of each must be the "
            "same pair"
        )
    counts, notes = judge(found, true), other_words(links, found, true)
    figures = {"precision": counts.precision, "recall": counts.recall, "aer": counts.aer}
    if as_json:
        tree = {"pairs": len(found), "links": counts.links, "figures": figures}
        return as_text(tree), notes
    rows = [f"{name:<10} {100 * value:6.2f} %" for name, value in figures.items()]
    return "\n".join([f"{len(found):,} pairs, {counts.links:,} links", *rows]), notes


def other_words(path: Path, found: Sequence[Links], gold: Sequence[Gold]) -> list[str]:
    """A warning where many links are beyond the last gold one, as if words were split otherwise.

    Annotators link nearly all last words (the full stops), so that few lines are such by chance.
    """
    beyond = [
        number
        for number, (links, true) in enumerate(zip(found, gold, strict=True), 1)
        if links and true.possible and any(map(gt, _last(links), _last(true.possible)))
    ]
    if len(beyond) <= 0.05 * len(gold):
        return []
    return [
        f"warning: {len(beyond):,} of {len(gold):,} lines of {path} have links beyond the last "
        f"gold link, the first in line {beyond[0]}: were the words counted as the gold's? "
        "Tokenised texts are aligned with: foveate align … --pretokenised"
    ]


def _last(links: Links) -> tuple[int, int]:
    """The last source word and the last target word that are linked."""
    return max(s for s, _ in links), max(t for _, t in links)


def joined(forward: Path, backward: Path, method: str) -> list[Links]:
    """The links of two directions as one; those of ``backward`` are (target, source)."""
    known(method)
    both = read_links(forward), read_links(backward)
    if len(both[0]) != len(both[1]):
        raise ConfigError(f"{forward} has {len(both[0])} lines, {backward} {len(both[1])}")
    return [
        symmetrize(there, {(s, t) for t, s in back}, method)  # type: ignore[arg-type]
        for there, back in zip(*both, strict=True)
    ]


def known(method: str) -> None:
    """Raise ``ConfigError`` for a way of joining that is none."""
    if method not in METHODS:
        raise ConfigError(f"no method {method!r}; there are: {', '.join(METHODS)}")


def read_links(path: Path) -> list[Links]:
    """The links of a Pharaoh file, a line for a pair. Raises ``ValueError`` naming the line."""
    lines = link_lines(find(path))
    return [read_pharaoh(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def write_links(found: Sequence[Links], out: Path | None, stream: TextIO) -> None:
    """Write a line of links for each pair, to a file that appears whole or to a stream."""
    text = "".join(write_pharaoh(links) + "\n" for links in found)
    if out is None:
        stream.write(text)
    else:
        replace_file(out, text)


def _described(best: RankedHead) -> str:
    return (
        f"layer {best.head.layer}, head {best.head.head}, rows {best.head.rows}: precision "
        f"{best.precision:.3f}, recall {best.recall:.3f}, error rate {best.aer:.3f}"
    )


def _texts(source: Path, target: Path | None = None, *more: Path) -> list[tuple[str, str]]:
    if more:
        raise ConfigError("--train-on names one TSV, or a source and a target file")
    corpus = read_pairs(source, target, TextData())
    return list(zip(corpus.sources, corpus.targets, strict=True))
