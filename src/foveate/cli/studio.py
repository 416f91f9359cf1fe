"""The verb ``foveate studio``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.command()(studio)


def studio(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN…", help="runs, or folders of runs")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free")] = 8377,
    browser: Annotated[bool, typer.Option(help="open the page")] = True,
    host: Annotated[
        str, typer.Option(help="another than this machine needs --token")
    ] = "127.0.0.1",
    token: Annotated[str | None, typer.Option(help="what the page asks for")] = None,
    openapi: Annotated[bool, typer.Option("--openapi", help="print the API and end")] = False,
) -> None:
    """Open runs in the browser."""
    from foveate.server.launch import serve_studio, studio_document

    if openapi:
        typer.echo(studio_document(), nl=False)
    else:
        serve_studio(runs or [], port, host, token, browser)
