"""The verbs that make something of a run: ``foveate distill``, ``foveate shortlist``.

Does not live here: what they do (`foveate.cli.distill`, `foveate.tasks.shortlist`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def add(app: typer.Typer) -> None:
    """Register the verbs."""
    app.command("distill")(distill)
    app.command("shortlist")(shortlist)


def distill(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the teacher")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="train, valid and test .jsonl go there")],
    beam_size: Annotated[int | None, typer.Option(min=1, help="default: the run's own")] = None,
    batch_tokens: Annotated[int | None, typer.Option(min=1, help="of a batch")] = None,
    checkpoint: Annotated[str, typer.Option(help="best, last, average or a step")] = "best",
    threads: Annotated[int | None, typer.Option(min=1, help="processor threads")] = None,
) -> None:
    """Write a teacher's outputs as data for a student."""
    import torch

    from foveate.cli.distill import distill as write
    from foveate.run import load

    if threads is not None:
        torch.set_num_threads(threads)
    search: dict[str, Any] = {"beam_size": beam_size, "batch_tokens": batch_tokens}

    def progress(done: int, of: int) -> None:
        print(f"{done:,} of {of:,} lines", file=sys.stderr)

    for line in write(load(run, checkpoint), out, search, progress):
        typer.echo(line)


def shortlist(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run")],
    often: Annotated[int, typer.Option(min=0, help="tokens that are always there")] = 300,
    likely: Annotated[int, typer.Option(min=1, help="tokens for each of the source")] = 100,
) -> None:
    """Learn which tokens may come next, for decode.shortlist=true."""
    from foveate.run import load
    from foveate.tasks.shortlist import learn, reach
    from foveate.tasks.translation import Translation

    loaded = load(run)
    task = loaded.need(Translation, "have a shortlist")
    made = learn(task, often, likely, loaded.config.seed)
    made.save(run)
    found, whole = reach(task, made), task.target_tokenizer.vocab_size
    typer.echo(
        f"a sentence has {found.size:,.0f} of {whole:,} tokens to choose from; these hold "
        f"{100 * found.covered:.2f} % of the tokens of the validation data"
    )
    typer.echo(f"to use them: foveate translate {run} decode.shortlist=true")
