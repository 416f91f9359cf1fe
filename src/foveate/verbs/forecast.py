"""The verb of forecasting: a table of forecasts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from foveate.files import replace_file

if TYPE_CHECKING:
    from foveate.run import Run


def forecast(run: Run, source: Path | None, out: Path | None) -> str:
    """The forecast after the end of a file as CSV; or, written to ``out``, where it went."""
    text = run.forecast(source).csv()
    if out is None:
        return text.rstrip("\n")
    replace_file(out, text.encode())
    return f"wrote {out}"
