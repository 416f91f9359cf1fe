"""The verbs that make runs and their data: train, average, distill, shortlist and quickstart."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import foveate.cli.options as options
from foveate.cli.options import load, say
from foveate.errors import ConfigError, install, not_built

if TYPE_CHECKING:
    from foveate.engine.answers import TranslateOptions
    from foveate.run import Run

CHUNK = 500  # sources that are searched together; `distill` continues at a whole chunk
SENTENCES = 7  # held-out ones on the page of the quickstart
EXPECTED = """\
{} where two processor cores are free, longer beside other programs, and 30
minutes at most; the lines below show the time left. Ctrl-C stops, and the same command resumes."""


def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml")],
    overrides: options.Overrides = None,
    run: Annotated[Path | None, typer.Option(metavar="DIR", help="folder of the run")] = None,
    changed_data: Annotated[
        bool, typer.Option("--changed-data", help="resume with changed training data")
    ] = False,
) -> None:
    """Train a config; a run that exists goes on."""
    from foveate.config import assigned, load_tree, shipped

    load_tree(shipped(config))  # what cannot be read is said before PyTorch is imported
    for override in overrides or ():
        assigned(override)
    from foveate.run.training import train

    train(config, overrides or [], run, changed_data)


def average(
    run: options.RunPath,
    last: Annotated[int | None, typer.Option(min=1, help="how many; default: all kept")] = None,
) -> None:
    """Average the weights of the last checkpoints."""
    from foveate.run.training import average

    typer.echo(average(run, last))


# A teacher's beam search gives what a student learns (Kim & Rush, 2016):
#
#     L(student) = −log p(ŷ | x),   ŷ ≈ argmax_y p_teacher(y | x)
#
# The student is trained by a plain config whose ``task.source`` is ``OUT/{split}.jsonl``.


def distill(
    run: options.RunPath,
    out: Annotated[Path, typer.Option(metavar="DIR", help="folder of train, valid, test .jsonl")],
    beam_size: options.BeamSize = None,
    ensemble: options.Ensemble = None,
    batch_tokens: Annotated[int | None, typer.Option(min=1, help="of a batch")] = None,
    checkpoint: options.Checkpoint = "best",
    threads: options.Threads = None,
) -> None:
    """Write what teachers translate as data for a student."""
    teacher = load(run, checkpoint, ensemble or ())
    search: TranslateOptions = {"beam_size": beam_size, "batch_tokens": batch_tokens}
    for line in write_distilled(
        teacher, out, search, lambda done, of: say([f"{done:,} of {of:,} lines"])
    ):
        typer.echo(line)


def write_distilled(
    run: Run,
    out: Path,
    search: TranslateOptions,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Write the teacher's data as ``out/train.jsonl``, and the true valid and test beside it.

    As many lines as training pairs, in their order. A folder that was begun by the same teacher
    with the same ``search`` continues; the file takes its name when it is whole. The messages of
    what was done. Raises ``ConfigError`` where the folder holds the beginning of other data.
    """
    out.mkdir(parents=True, exist_ok=True)
    done = out / "train.jsonl"
    if done.exists():
        raise ConfigError(f"{done} already exists; remove it, or choose another folder")
    sources, _ = run.pairs("train")
    part = out / "train.jsonl.part"
    begun = _begun(part, _mark(run, search, sources))
    cut = 0
    with part.open("a", encoding="utf-8", newline="\n") as file:
        for start in range(begun, len(sources), CHUNK):
            chunk = sources[start : start + CHUNK]
            answers = run.translate(chunk, **search)
            cut += sum(answer.cut > 0 for answer in answers)
            file.writelines(_json_line(answer.source, str(answer)) for answer in answers)
            file.flush()
            os.fsync(file.fileno())
            if progress is not None:
                progress(start + len(chunk), len(sources))
    os.replace(part, done)
    part.with_suffix(".mark").unlink()
    messages = [f"{len(sources):,} lines in {done}"]
    messages += [f"{cut:,} sources longer than data.max_length were cut"] if cut else []
    messages += [f"resumed from line {begun + 1:,}"] if begun else []
    return messages + [_write_true(run, out, split) for split in ("valid", "test")]


def _write_true(run: Run, out: Path, split: str) -> str:
    """Write the run's own pairs of a split."""
    from foveate.data.catalogue import DataError
    from foveate.files import replace_file

    try:
        pairs = list(zip(*run.pairs(split), strict=True))
    except DataError:
        return f"no {split} data: the run has none"
    replace_file(out / f"{split}.jsonl", "".join(_json_line(*pair) for pair in pairs))
    return f"{len(pairs):,} true pairs in {out / f'{split}.jsonl'}"


def _json_line(source: str, target: str) -> str:
    return json.dumps({"source": source, "target": target}, ensure_ascii=False) + "\n"


def _mark(run: Run, search: TranslateOptions, sources: Sequence[str]) -> str:
    """Return a hash of what the data depends on: the teacher, its search, the sources."""
    plain = [str(run.path.resolve()), run.checkpoint, sorted(search.items()), list(sources)]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


def _begun(part: Path, mark: str) -> int:
    """Return the number of lines in whole chunks; cut off the rest."""
    from foveate.files import replace_file

    owner = part.with_suffix(".mark")
    if not owner.exists():
        part.unlink(missing_ok=True)
        replace_file(owner, mark)
    if owner.read_text(encoding="utf-8") != mark:
        raise ConfigError(
            f"{part} was started with another teacher, search or data; remove "
            f"{part.parent} or choose another folder"
        )
    lines = part.read_bytes().splitlines(keepends=True) if part.exists() else []
    whole = sum(line.endswith(b"\n") for line in lines) // CHUNK * CHUNK
    if lines:
        os.truncate(part, sum(map(len, lines[:whole])))  # what stays is never written again
    return whole


def shortlist(
    run: options.RunPath,
    often: Annotated[int, typer.Option(min=0, help="tokens that are always included")] = 300,
    likely: Annotated[int, typer.Option(min=1, help="tokens for each source token")] = 100,
) -> None:
    """Learn which tokens may come next, for decode.shortlist=true."""
    from foveate.align.shortlist import learn, reach
    from foveate.run.pack import renew
    from foveate.tasks.translation import Translation

    loaded = load(run)
    task = loaded.need(Translation, "have a shortlist")
    tokens = learn(task, often, likely, loaded.config.seed)
    tokens.save(run)
    renew(run)
    coverage, whole = reach(task, tokens), task.target_tokenizer.vocab_size
    typer.echo(
        f"a sentence has {coverage.size:,.0f} of {whole:,} tokens to choose from; these hold "
        f"{100 * coverage.covered:.2f} % of the tokens of the validation data"
    )
    typer.echo(f"to use them: foveate translate {run} decode.shortlist=true")


def quickstart(
    folder: Annotated[
        Path | None, typer.Option(help="where the run goes; default: runs/quickstart, runs/grammar")
    ] = None,
    grammar: Annotated[
        bool, typer.Option("--grammar", help="sentences of a grammar, with gold alignments")
    ] = False,
) -> None:
    """Train a small translator and look inside."""
    from foveate.bench.quickstart import CORPORA

    corpus = "short" if grammar else "everyday"
    start(folder or Path("runs") / CORPORA[corpus].name, corpus)


def start(
    folder: Path,
    corpus: str = "everyday",
    sizes: Mapping[str, int] | None = None,
    overrides: Sequence[str] = (),
) -> dict[str, float]:
    """Write an embedded corpus and its config into ``folder``, train, evaluate, and draw.

    The figures on the held-out sentences: bleu, chrf, ter, exact_match and, of a corpus with gold
    links, aer.
    """
    from rich.console import Console

    from foveate.bench.quickstart import CORPORA, judge_alignment, prepared, why_poor
    from foveate.run.training import train

    console, own = Console(stderr=True, highlight=False, markup=False), CORPORA[corpus]
    sizes = sizes or own.sizes
    console.rule(f"1 · data: {own.about}")
    config, data = prepared(folder, corpus, sizes), folder / "data"
    console.print(f"{sizes['train']:,} pairs to train on, {sizes['test']:,} held out: {data}")

    console.rule(f"2 · training: {config}")
    console.print(EXPECTED.format(own.expected), soft_wrap=True)
    run = train(config, overrides, folder / "run")

    console.rule(f"3 · {own.held_out}")
    evaluation = run.evaluate(*run.pairs("test"))
    figures = dict(evaluation.figures)
    name, head, agreement = judge_alignment(run, data)
    if (data / "test.align").exists():
        figures["aer"] = agreement.aer
    for figure, value in evaluation.figures.items():
        console.print(f"{figure:>12} {value:6.2f}")
    whose = "aer" if "aer" in figures else "aer, by an aligner's links"
    console.print(f"{whose:>12} {agreement.aer:6.3f}  ({name}, head {head})")
    resume = f"{_command()} train {config} --run {run.path}"
    if poor := why_poor(run, evaluation.figures["bleu"], own.good, resume):
        console.print(poor, style="bold", soft_wrap=True)

    console.rule("4 · translate, and see why")
    tried = run.pairs("test")[0]
    shown = tried[:: max(1, len(tried) // SENTENCES)][:SENTENCES]
    drawn = _translated(run, [own.sentence, *shown], (name, head), folder, console.print)
    console.rule("5 · next")
    places = {"run": run.path, "film": folder / "film.html", **drawn}
    next_steps = NEXT.format(**places, command=_command(), sentence=own.sentence)
    console.print(next_steps + missing_for_studio(), soft_wrap=True)
    return figures


def _translated(
    run: Run,
    sentences: Sequence[str],
    place: tuple[str, int],
    folder: Path,
    say: Callable[[str], None],
) -> dict[str, Path]:
    """Translate sentences, draw a head (layer, number) as it reads the first; the files drawn."""
    from foveate.draw.maps import attention, save_html

    records = []
    for answer in run.translate(sentences):
        say(f"{answer.source}\n  → {answer.hypotheses[0]}")
        records.append(answer.record())
    layer = records[0].names("cross_attention").index(place[0])
    view = attention(records[0], layer=layer, head=place[1])
    print(view.text())
    files = {"picture": folder / "attention.png", "page": folder / "attention.html"}
    view.save(files["picture"])
    save_html(records, files["page"])
    return files


def _command() -> str:
    """Return the command foveate: its name, or its path if PATH does not have it."""
    path = shutil.which("foveate", path=Path(sys.executable).parent)  # .exe on Windows
    if shutil.which("foveate") or path is None:
        return "foveate"
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path


def missing_for_studio() -> str:
    """Return a line for each missing part of the studio, with the remedy."""
    lines = ""
    if not all(map(find_spec, ("fastapi", "uvicorn"))):
        lines += f"\n  the studio's packages are missing; {install('studio')}"
    if not files("foveate").joinpath("server/static/index.html").is_file():
        lines += "\n  " + not_built("the studio's page")
    return lines


NEXT = """\
look at the picture      {picture}
open in a browser        {page}
translate a line         echo "{sentence}" | {command} translate {run}
draw your own sentence   {command} look attention {run} --text "{sentence}"
watch it learn           {command} look learning {run} --out {film}
what can be changed      {command} kinds
what this run is         {command} show {run}
your own data            {command} data report train.en train.fr
see it in the studio     {command} studio {run} → http://127.0.0.1:8377"""
