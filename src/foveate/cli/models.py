"""The verb ``foveate models``: what is installed beside the program, and answers by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from foveate.cli.options import Json, installed, remedy, to_json

if TYPE_CHECKING:
    from pathlib import Path

    from foveate.config import Tree


def models(as_json: Json = False) -> None:
    """List the installed models: languages, size, scores, data."""
    tree = {name: described(name, file) for name, file in installed().items()}
    if as_json:
        typer.echo(to_json(tree))
        return
    for name, model in tree.items():
        scores = ", ".join(
            f"{data} BLEU {each['bleu']:.1f} chrF {each['chrf']:.1f}"
            for data, each in model["scores"].items()
        )
        size, languages = model["bytes"] / 1e6, " → ".join(model["languages"])
        typer.echo(f"{name:<10} {languages}, {size:.1f} MB: {model['file']}")
        typer.echo(f"{'':<10} {scores or 'no scores'}")
        typer.echo(f"{'':<10} trained on {model['data'] or 'unnamed data'}")
    if not tree:
        typer.echo(f"no models are installed; {remedy()}")
    else:
        typer.echo(f'to use one: echo "…" | foveate translate {next(iter(tree))}')


def described(name: str, file: Path) -> Tree:
    """Describe a packed file. Raises `foveate.engine.packed.PackedError`."""
    from foveate.documents.languages import directions
    from foveate.engine.packed import header_of

    header = header_of(file)
    direction = directions(header.corpora, file)[0]
    return {
        "languages": [direction.source, direction.target],
        "file": str(file),
        "bytes": file.stat().st_size,
        "scores": header.scores.get("tests", {}),
        "data": header.licence,
        "made_of": header.made_of,
    }
