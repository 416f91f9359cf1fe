"""The first five minutes: train on the embedded corpus, judge, translate, and look inside."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from foveate.align.aer import Agreement, Gold, rank_heads, read_pharaoh
from foveate.data.synthetic import write
from foveate.look.maps import attention
from foveate.look.page import save_html
from foveate.run import Run
from foveate.training import train

SIZES = {"train": 60_000, "valid": 200, "test": 500}
Maps = dict[str, NDArray[np.float32]]
SENTENCES = 8  # on the page


def main(
    folder: Path, sizes: Mapping[str, int] = SIZES, overrides: Sequence[str] = ()
) -> dict[str, float]:
    """Write the corpus and its config into ``folder``, train, and show what there is to see.

    Gives the figures on the held-out sentences: bleu, chrf, ter, exact_match and aer.
    """
    console = Console(stderr=True, highlight=False)
    console.rule("1 · data: an English–French grammar, with the true word alignments")
    data = folder / "data"
    write(data, sizes)
    console.print(f"{sizes['train']:,} pairs to train on, {sizes['test']} held out: {data}")
    config = folder / "quickstart.toml"
    template = files("foveate").joinpath("quickstart.toml").read_text(encoding="utf-8")
    config.write_text(template.replace("{folder}", folder.as_posix()), encoding="utf-8")

    console.rule(f"2 · training: {config}")
    run = train(config, overrides, folder / "run")

    console.rule("3 · held-out sentences, with combinations that training never showed")
    evaluation = run.evaluate(*run.pairs("test"))
    for name, value in evaluation.figures.items():
        console.print(f"{name:>12} {value:6.2f}")
    name, head, agreement = judge_alignment(run, data)
    console.print(f"{'aer':>12} {agreement.aer:6.3f}  ({name}, head {head})")

    console.rule("4 · translate, and see why")
    records = []
    sentences = run.pairs("test")[0][:SENTENCES]
    for answer in run.translate(sentences):
        console.print(f"{answer.source}\n  → [bold]{answer.hypotheses[0]}[/bold]")
        records.append(answer.record())
    layer = records[0].names("cross_attention").index(name)
    view = attention(records[0], layer=layer, head=head)
    print(view.text())
    picture, page = folder / "attention.png", folder / "attention.html"
    view.save(picture)
    save_html(records, page)

    console.rule("5 · next")
    next_steps = NEXT.format(run=run.path, picture=picture, page=page, command=_command())
    console.print(next_steps + missing_for_studio(), highlight=False, soft_wrap=True)
    return {**evaluation.figures, "aer": agreement.aer}


def judge_alignment(run: Run, data: Path) -> tuple[str, int, Agreement]:
    """The cross-attention head that aligns best on the validation data, judged on the test data.

    Gold links belong to the reference, so each reference is forced, not the model's own answer.
    """
    name, head, _ = rank_heads(*_explained(run, data, "valid"))[0]
    maps, gold = _explained(run, data, "test")
    chosen = ({name: map_[name][head : head + 1]} for map_ in maps)
    return name, head, rank_heads(chosen, gold)[0][2]


def _explained(run: Run, data: Path, split: str) -> tuple[Iterator[Maps], list[Gold]]:
    """The cross-attention maps of each pair of a split, between words, and its gold links."""
    lines = (data / f"{split}.align").read_text(encoding="utf-8").splitlines()
    gold = [Gold(links, links) for links in map(read_pharaoh, lines)]
    records = (run.explain(*pair, units="words") for pair in zip(*run.pairs(split), strict=True))
    blocks = "cross_attention"
    return ({n: r.maps[n][:, :-1, :-1] for n in r.names(blocks)} for r in records), gold


def _command() -> str:
    """How the shell calls foveate: by its name, or by its path where PATH does not have it."""
    path = Path(sys.executable).parent / "foveate"
    if shutil.which("foveate") or not path.exists():
        return "foveate"
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def missing_for_studio() -> str:
    """A line for each part of the studio that is not installed, with the remedy."""
    lines = ""
    if not all(map(find_spec, ("fastapi", "uvicorn"))):
        lines += "\n  the studio's packages are missing: pip install 'foveate[studio]'"
    if not files("foveate").joinpath("server/static/index.html").is_file():
        lines += "\n  the studio's page is not built: install Node 20.19 or newer, then make page"
    return lines


NEXT = """\
look at the picture      {picture}
open in a browser        {page}
translate a line         echo "She closes the old window." | {command} translate {run}
draw your own sentence   {command} look attention {run} --text "She closes the old window."
what can be changed      {command} kinds
what this run is         {command} show {run}
your own data            {command} data report train.en train.fr
see it in the studio     {command} studio {run} → http://127.0.0.1:8377"""
