"""The verbs of language models. Nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

Above0 = Annotated[float | None, typer.Option(min=0.0, help="default: the run's own")]


verbs = typer.Typer()


def add(app: typer.Typer) -> None:
    """Register the verbs."""
    app.registered_commands += verbs.registered_commands


@verbs.command()
def generate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run")],
    prompt: Annotated[
        str | None, typer.Option(help="or lines on stdin; a blank one is none")
    ] = None,
    max_length: Annotated[int, typer.Option(min=1, help="tokens")] = 200,
    num: Annotated[int, typer.Option(min=1, help="texts for each prompt")] = 1,
    temperature: Above0 = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="the k most probable")] = None,
    top_p: Annotated[float | None, typer.Option(help="the most probable of mass p")] = None,
    min_p: Annotated[float | None, typer.Option(help="p times the most probable")] = None,
    repetition_penalty: Above0 = None,
    seed: Annotated[int | None, typer.Option(min=0, help="the same draws the same")] = None,
    beam_size: Annotated[int | None, typer.Option(min=1, help="search instead; 1: greedy")] = None,
    whole_lines: Annotated[bool, typer.Option("--whole-lines", help="end with the line")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, a text a line")] = False,
    checkpoint: Annotated[str, typer.Option(help="best, last, average or a step")] = "best",
    threads: Annotated[int | None, typer.Option(min=1, help="processor threads")] = None,
) -> None:
    """Go on with a text, by a language model."""
    import torch

    from foveate.cli import streams as verbs
    from foveate.run import load

    if threads is not None:
        torch.set_num_threads(threads)
    choices = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
        "beam_size": beam_size,
    }
    given = {name: value for name, value in choices.items() if value is not None}
    lengths = {"max_length": max_length, "num": num, "whole_lines": whole_lines}
    stdin = None if prompt is not None or sys.stdin.isatty() else sys.stdin.buffer
    loaded = load(run, checkpoint)
    damaged: list[int] = []
    starts = verbs.prompts(prompt, stdin, damaged)
    verbs.generate(loaded, starts, sys.stdout, lengths | given, as_json)
    if damaged:
        typer.echo(f"not UTF-8, the bytes read as U+FFFD: lines {damaged[:10]}", err=True)
