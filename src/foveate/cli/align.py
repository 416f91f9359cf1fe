"""The verbs of word alignment: ``foveate align MODEL SOURCE TARGET | evaluate | symmetrize``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from foveate.cli.options import Checkpoint, DefaultGroup, Json, flat, load, say, to_json
from foveate.errors import ConfigError

if TYPE_CHECKING:
    from foveate.align.aer import Gold
    from foveate.align.ibm import Pair
    from foveate.engine.links import Links, Maps, Rows


align = typer.Typer(
    cls=DefaultGroup,
    help="Link the words of pairs: foveate align MODEL SOURCE TARGET.",
    no_args_is_help=True,
)

Out = Annotated[Path | None, typer.Option(help="write here, not to standard output")]


@dataclass(frozen=True)
class RunLinks:
    """The options of a run: which head gives the links."""

    layer: Annotated[int | None, typer.Option(help="layer of a run; -1 is the last")] = None
    head: Annotated[int | None, typer.Option(min=0, help="default: the mean of all heads")] = None
    gold: Annotated[Path | None, typer.Option(help="gold links that choose the head")] = None
    agree_with: Annotated[Path | None, typer.Option(help="Pharaoh links that choose it")] = None
    save: Annotated[bool, typer.Option("--save", help="save the head with the run")] = False
    after_reading: Annotated[
        bool, typer.Option("--after-reading", help="rows are the words read, not produced")
    ] = False

    def reference(self) -> list[Gold] | None:
        """Return the links to compare heads with. Raises ``ConfigError`` for several options."""
        from foveate.align.aer import Gold, read_gold
        from foveate.data.catalogue import find

        named = self.layer is not None or self.head is not None
        if sum((named, self.gold is not None, self.agree_with is not None)) > 1:
            raise ConfigError("choose the head by one of --layer/--head, --gold and --agree-with")
        if self.gold is not None:
            return read_gold(find(self.gold), lambda line: say([line]))
        if self.agree_with is not None:
            return [Gold(links, links) for links in read_links(self.agree_with)]
        return None

    def check(self, reference: Sequence[Gold], files: PairFiles, pairs: Sequence[Pair]) -> None:
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


@align.command("files")
@flat
def align_files(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="a run, ibm1, hmm, …")],
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="one sentence per line")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="the translations")],
    selection: RunLinks = RunLinks(),
    symmetrize: Annotated[
        str | None, typer.Option(help="join both directions: union, grow-diag, …")
    ] = None,
    pretokenised: Annotated[
        bool | None, typer.Option(help="spaces separate words; default: detected")
    ] = None,
    to: Annotated[str | None, typer.Option(help="target language, if several")] = None,
    out: Out = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Print word links 0-0 1-2 of each pair, by a run's attention or a trained aligner."""
    from foveate.config import kinds
    from foveate.kinds import load_kinds

    split: dict[bool | None, Literal["text", "blanks"]] = {True: "blanks", False: "text"}
    files = PairFiles(source, target, split.get(pretokenised))
    load_kinds()
    if model in kinds("aligner")["aligner"] and not Path(model, "config.toml").exists():
        names = ("layer", "head", "gold", "agree_with")
        refuse(f"{model} is not a run", **{n: getattr(selection, n) for n in names}, to=to)
        links, messages = by_aligner(model, files, symmetrize)
    else:
        refuse("a run is trained already", symmetrize=symmetrize)
        links, messages = by_run(Path(model), checkpoint, files, selection, to)
    say(messages)
    write_links(links, out)


@align.command("evaluate")
def evaluate_links(
    links: Annotated[Path, typer.Argument(metavar="LINKS", help="file of 0-0 1-2")],
    gold: Annotated[Path, typer.Argument(metavar="GOLD", help="file of 1-1 2p3 (p: possible)")],
    as_json: Json = False,
) -> None:
    """Compute precision, recall and alignment error rate."""
    from foveate.align.aer import judge, read_gold
    from foveate.data.catalogue import find

    links_of, true = read_links(links), read_gold(find(gold), lambda line: say([line]))
    if len(links_of) != len(true):
        raise ConfigError(
            f"{links} has {len(links_of):,} lines, {gold} {len(true):,}: line n of each must be "
            "the same pair"
        )
    counts = judge(links_of, true)
    figures = {"precision": counts.precision, "recall": counts.recall, "aer": counts.aer}
    if as_json:
        typer.echo(to_json({"pairs": len(links_of), "links": counts.links, "figures": figures}))
    else:
        typer.echo(f"{len(links_of):,} pairs, {counts.links:,} links")
        for name, value in figures.items():
            typer.echo(f"{name:<10} {100 * value:6.2f} %")


@align.command("symmetrize")
def join_links(
    forward: Annotated[Path, typer.Argument(metavar="FORWARD", help="source-target links")],
    backward: Annotated[Path, typer.Argument(metavar="BACKWARD", help="target-source links")],
    method: Annotated[str, typer.Option(help="union, grow-diag, …")] = "grow-diag-final-and",
    out: Out = None,
) -> None:
    """Join the links of two directions."""
    join = known_method(method)
    both = read_links(forward), read_links(backward)
    if len(both[0]) != len(both[1]):
        raise ConfigError(f"{forward} has {len(both[0])} lines, {backward} {len(both[1])}")
    joined = [join(links, {(s, t) for t, s in back}) for links, back in zip(*both, strict=True)]
    write_links(joined, out)


@dataclass(frozen=True)
class PairFiles:
    """Two line-aligned files and how their words are split; None: see `resolved`."""

    source: Path
    target: Path
    words: Literal["text", "blanks"] | None = None

    def resolved(self, texts: Sequence[tuple[str, str]]) -> tuple[PairFiles, list[str]]:
        """Return the same with ``words`` chosen, "blanks" if the texts look tokenised.

        A message names the choice if it makes a difference.
        """
        from foveate.data.words import marks_apart, split_blanks, split_words

        sides = [side for pair in texts for side in pair]
        if self.words is not None or all(split_words(s) == split_blanks(s) for s in sides):
            return replace(self, words=self.words or "text"), []
        apart, count = marks_apart(sides)
        marks = f"{apart:,} of {count:,} full stops and commas are separate"
        if apart > 0.9 * count:
            chosen = f"split at spaces, since the texts are tokenised ({marks}); "
            return replace(self, words="blanks"), [f"words: {chosen}{OVERRIDES['blanks']}"]
        return replace(self, words="text"), [f"words: plain text ({marks}); {OVERRIDES['text']}"]

    def cut(self, texts: Sequence[tuple[str, str]]) -> list[Pair]:
        """Return the words of both sides of each pair."""
        from foveate.data.words import CUTS

        spans = CUTS[self.words or "text"]
        return [([s[a:b] for a, b in spans(s)], [t[a:b] for a, b in spans(t)]) for s, t in texts]


OVERRIDES = {
    "text": "if they are tokenised: --pretokenised",
    "blanks": "to split them as plain text: --no-pretokenised",
}


def refuse(why: str, **options: object) -> None:
    """Raise ``ConfigError`` for the first option that is set but does not apply."""
    for name, value in options.items():
        if value:
            raise ConfigError(f"--{name.replace('_', '-')}: {why}; leave it out")


def by_aligner(
    name: str, files: PairFiles, method: str | None = None
) -> tuple[list[Links], list[str]]:
    """Train an aligner of a kind on the files, and link their words.

    Returns the links of each pair, and messages.
    """
    from foveate.align.ibm import Aligner

    tree: dict[str, object] = {"kind": name}
    if method is not None:
        known_method(method)
        tree = {"kind": "symmetrised", "aligner": tree, "method": method}
    aligner = Aligner.Config.parse(tree).build()
    texts = read_texts(files.source, files.target)
    files, notes = files.resolved(texts)
    pairs = files.cut(texts)
    history = aligner.train(pairs)
    message = f"{name}: {len(pairs):,} pairs, {len(history)} iterations"
    message += f", log p {history[-1]:,.0f}" if history else ""
    return aligner.align(pairs), [*notes, message]


def by_run(
    folder: Path,
    checkpoint: str,
    files: PairFiles,
    selection: RunLinks = RunLinks(),
    to: str | None = None,
) -> tuple[list[Links], list[str]]:
    """Choose a head of a run; return its links of each pair, and messages.

    ``to`` names the language if the run knows several.
    """
    from foveate.align.aer import choose
    from foveate.config import kinds, shipped
    from foveate.data.words import CUTS
    from foveate.engine.links import Head
    from foveate.run.pack import renew
    from foveate.run.passes import word_maps
    from foveate.tasks.translation import Translation

    folder = shipped(folder)
    if not folder.is_dir():
        names = ", ".join(sorted(kinds("aligner")["aligner"]))
        raise ConfigError(f"{folder} is neither the folder of a run nor one of {names}")
    run, texts = load(folder, checkpoint), read_texts(files.source, files.target)
    task = run.need(Translation, "align")
    sources = task.sides.addressed([source for source, _ in texts], to)
    read = list(zip(sources, [target for _, target in texts], strict=True))
    texts = [(task.source_tokenizer.bare(source), target) for source, target in read]
    files, messages = files.resolved(texts)
    reference = selection.reference()
    rows: Rows = "read" if selection.after_reading else "produced"
    layer = -1 if selection.layer is None else selection.layer
    saved = Head.load(folder, Head(*task.head))
    named = selection.layer is not None or selection.head is not None or reference is not None
    head = Head(layer, selection.head, rows) if named else saved
    if rows == "read":
        head = replace(head, rows=rows)

    def maps() -> Iterable[Maps]:
        return word_maps(task, run.model, read, head.rows, CUTS[files.words or "text"])

    if reference is not None:
        selection.check(reference, files, files.cut(texts))
        head, best = choose(maps(), reference, head.rows)[0]
        messages.append(
            f"layer {head.layer}, head {head.head}, rows {head.rows}: precision "
            f"{best.precision:.3f}, recall {best.recall:.3f}, error rate {best.aer:.3f}"
        )
    if selection.save:
        head.save(folder, "named" if reference is None else messages[-1])
        renew(folder)
        messages.append(f"saved: {folder} aligns with layer {head.layer}, head {head.head}")
    return list(map(head.links, maps())), messages


def known_method(method: str) -> Callable[[Links, Links], Links]:
    """Return a method of symmetrization. Raises ``ConfigError`` for an unknown one."""
    from foveate.align.aer import METHODS

    if method not in METHODS:
        raise ConfigError(f"no method {method!r}; there are: {', '.join(METHODS)}")
    return METHODS[method]


def read_links(path: Path) -> list[Links]:
    """Read the links of a Pharaoh file, a line for a pair. Raises `UserError` naming the line."""
    from foveate.data.catalogue import find
    from foveate.engine.links import link_lines, read_pharaoh

    lines = link_lines(find(path))
    return [read_pharaoh(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def write_links(each: Sequence[Links], out: Path | None) -> None:
    """Write a line of links for each pair, to a file that appears whole or to standard output."""
    from foveate.engine.links import write_pharaoh
    from foveate.files import replace_file

    text = "".join(write_pharaoh(links) + "\n" for links in each)
    if out is None:
        sys.stdout.write(text)
    else:
        replace_file(out, text)


def read_texts(source: Path, target: Path) -> list[tuple[str, str]]:
    """Read the pairs of two files."""
    from foveate.data.text import TextData, read_pairs

    corpus = read_pairs(source, target, TextData())
    return list(zip(corpus.sources, corpus.targets, strict=True))
