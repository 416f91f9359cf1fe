"""The verbs that make runs and their data: train, average, distill, shortlist and quickstart."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import foveate.cli.options as options
from foveate.cli.options import load, say
from foveate.errors import ConfigError, install

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from foveate.align.aer import Gold, LinkCounts
    from foveate.answers import TranslateOptions
    from foveate.run import Run

    Maps = dict[str, NDArray[np.float32]]

CHUNK = 500  # sources that are searched together; `distill` continues at a whole chunk
SIZES = {"train": 60_000, "valid": 200, "test": 500}  # sentences of the quickstart
SENTENCES = 8  # on its page
GOOD = 50.0  # BLEU; the whole training has far more
EXPECTED = """\
2,000 steps: two minutes where two processor cores are free, longer beside other programs, and 20
minutes at most; the lines below show the time left. Ctrl-C stops, and the same command goes on."""


def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml")],
    overrides: options.Overrides = None,
    run: Annotated[Path | None, typer.Option(metavar="DIR", help="where the run goes")] = None,
    changed_data: Annotated[
        bool, typer.Option("--changed-data", help="go on with other training examples")
    ] = False,
) -> None:
    """Train a config; a run that exists goes on."""
    from foveate.training import train

    train(config, overrides or [], run, changed_data)


def average(
    run: options.RunPath,
    last: Annotated[int | None, typer.Option(min=1, help="how many; all kept if absent")] = None,
) -> None:
    """Average the weights of the last checkpoints."""
    from foveate.training import average

    typer.echo(average(run, last))


# ------------------------------------------------------------------------------ distillation
# A teacher's beam search gives what a student learns (Kim & Rush, 2016):
#
#     L(student) = −log p(ŷ | x),   ŷ ≈ argmax_y p_teacher(y | x)
#
# The student is trained by a plain config whose ``task.source`` is ``OUT/{split}.jsonl``.


def distill(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the teacher")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="train, valid and test .jsonl go there")],
    beam_size: options.BeamSize = None,
    batch_tokens: Annotated[int | None, typer.Option(min=1, help="of a batch")] = None,
    checkpoint: options.Checkpoint = "best",
    threads: options.Threads = None,
) -> None:
    """Write a teacher's outputs as data for a student."""
    teacher = load(run, checkpoint)
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
        raise ConfigError(f"{done} is there already; remove it, or choose another folder")
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
    messages += [f"went on from line {begun + 1:,}"] if begun else []
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
    """A hash of what the data depends on: the teacher, its search, the sources."""
    plain = [str(run.path.resolve()), run.checkpoint, sorted(search.items()), list(sources)]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


def _begun(part: Path, mark: str) -> int:
    """The number of lines in whole chunks; the rest is cut off."""
    from foveate.files import replace_file

    owner = part.with_suffix(".mark")
    if not owner.exists():
        part.unlink(missing_ok=True)
        replace_file(owner, mark)
    if owner.read_text(encoding="utf-8") != mark:
        raise ConfigError(
            f"{part} was begun by another teacher, with another search or other data; remove "
            f"{part.parent} or choose another folder"
        )
    lines = part.read_bytes().splitlines(keepends=True) if part.exists() else []
    whole = sum(line.endswith(b"\n") for line in lines) // CHUNK * CHUNK
    if lines:
        os.truncate(part, sum(map(len, lines[:whole])))  # what stays is never written again
    return whole


def shortlist(
    run: options.RunPath,
    often: Annotated[int, typer.Option(min=0, help="tokens that are always there")] = 300,
    likely: Annotated[int, typer.Option(min=1, help="tokens for each of the source")] = 100,
) -> None:
    """Learn which tokens may come next, for decode.shortlist=true."""
    from foveate.pack import renew
    from foveate.tasks.shortlist import learn, reach
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


# ------------------------------------------------------------------------------ quickstart


def quickstart(
    folder: Annotated[Path, typer.Option(help="where the run goes")] = Path("runs/quickstart"),
) -> None:
    """Train a small translator and look inside."""
    start(folder)


def start(
    folder: Path, sizes: Mapping[str, int] = SIZES, overrides: Sequence[str] = ()
) -> dict[str, float]:
    """Write the embedded corpus and its config into ``folder``, train, evaluate, and draw.

    The figures on the held-out sentences: bleu, chrf, ter, exact_match and aer.
    """
    from rich.console import Console

    from foveate.data.synthetic import write
    from foveate.draw.maps import attention, save_html
    from foveate.training import train

    console = Console(stderr=True, highlight=False, markup=False)
    console.rule("1 · data: an English–French grammar, with the true word alignments")
    data = folder / "data"
    write(data, sizes)
    console.print(f"{sizes['train']:,} pairs to train on, {sizes['test']} held out: {data}")
    config = folder / "quickstart.toml"
    template = files("foveate").joinpath("quickstart.toml").read_text(encoding="utf-8")
    config.write_text(template.replace("{folder}", folder.as_posix()), encoding="utf-8")

    console.rule(f"2 · training: {config}")
    console.print(EXPECTED, soft_wrap=True)
    run = train(config, overrides, folder / "run")

    console.rule("3 · held-out sentences, with combinations that training never showed")
    evaluation = run.evaluate(*run.pairs("test"))
    for name, value in evaluation.figures.items():
        console.print(f"{name:>12} {value:6.2f}")
    name, head, agreement = judge_alignment(run, data)
    console.print(f"{'aer':>12} {agreement.aer:6.3f}  ({name}, head {head})")
    if poor := why_poor(run, config, evaluation.figures["bleu"]):
        console.print(poor, style="bold", soft_wrap=True)

    console.rule("4 · translate, and see why")
    records = []
    sentences = run.pairs("test")[0][:SENTENCES]
    for answer in run.translate(sentences):
        console.print(f"{answer.source}\n  → {answer.hypotheses[0]}")
        records.append(answer.record())
    layer = records[0].names("cross_attention").index(name)
    view = attention(records[0], layer=layer, head=head)
    print(view.text())
    picture, page = folder / "attention.png", folder / "attention.html"
    view.save(picture)
    save_html(records, page)

    console.rule("5 · next")
    places = {"run": run.path, "picture": picture, "page": page, "film": folder / "film.html"}
    next_steps = NEXT.format(**places, command=_command())
    console.print(next_steps + missing_for_studio(), soft_wrap=True)
    return {**evaluation.figures, "aer": agreement.aer}


def why_poor(run: Run, config: Path, bleu: float) -> str:
    """Why the translations are poor, and how to go on; "" if they are not."""
    from foveate.train.journal import clock, read

    if bleu >= GOOD:
        return ""
    last = read(run.path)[-1]
    step, seconds = last["step"], float(last["seconds"])
    all_steps = run.config.train.max_steps or 0
    if step >= all_steps:
        return f"BLEU {bleu:.2f} is poor: {all_steps:,} steps are too few; go on with more"
    needed = seconds / max(1, step) * all_steps
    return (
        f"BLEU {bleu:.2f} is poor, for only {step:,} of {all_steps:,} steps were done in "
        f"{clock(seconds)}: this machine is slow, or other programs use it. All steps take about "
        f"{clock(needed)} at this pace; to go on: {_command()} train {config} --run {run.path} "
        f"train.max_minutes={int(needed / 60) + 1}"
    )


def judge_alignment(run: Run, data: Path) -> tuple[str, int, LinkCounts]:
    """The cross-attention head that aligns best on the validation data, measured on the test data.

    Gold links belong to the reference, so the model reads each reference, not its own answer.
    """
    from foveate.align.aer import rank_heads

    name, head, _ = rank_heads(*_explained(run, data, "valid"))[0]
    maps, gold = _explained(run, data, "test")
    chosen = ({name: map_[name][head : head + 1]} for map_ in maps)
    return name, head, rank_heads(chosen, gold)[0][2]


def _explained(run: Run, data: Path, split: str) -> tuple[Iterator[Maps], list[Gold]]:
    """The cross-attention maps of each pair of a split, between words, and its gold links."""
    from foveate.align.aer import Gold, read_pharaoh

    lines = (data / f"{split}.align").read_text(encoding="utf-8").splitlines()
    gold = [Gold(links, links) for links in map(read_pharaoh, lines)]
    records = (run.explain(*pair, units="words") for pair in zip(*run.pairs(split), strict=True))
    blocks = "cross_attention"
    return ({n: r.maps[n][:, :-1, :-1] for n in r.names(blocks)} for r in records), gold


def _command() -> str:
    """The command foveate: its name, or its path where PATH does not have it."""
    path = Path(sys.executable).parent / "foveate"
    if shutil.which("foveate") or not path.exists():
        return "foveate"
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def missing_for_studio() -> str:
    """A line for each part of the studio that is not installed, with the remedy."""
    lines = ""
    if not all(map(find_spec, ("fastapi", "uvicorn"))):
        lines += f"\n  the studio's packages are missing; {install('studio')}"
    if not files("foveate").joinpath("server/static/index.html").is_file():
        lines += "\n  the studio's page is not built: install Node 20.19 or newer, then make page"
    return lines


NEXT = """\
look at the picture      {picture}
open in a browser        {page}
translate a line         echo "She closes the old window." | {command} translate {run}
draw your own sentence   {command} look attention {run} --text "She closes the old window."
watch it learn           {command} look learning {run} --out {film}
what can be changed      {command} kinds
what this run is         {command} show {run}
your own data            {command} data report train.en train.fr
see it in the studio     {command} studio {run} → http://127.0.0.1:8377"""
