"""The pictures of the README, light and dark, in ``docs/pictures``: a map, the walk, the studio.

    python tools/readme.py runs/grammar/run

The run is that of ``foveate quickstart --grammar``. Needs playwright, Chromium and the built pages.
"""

from __future__ import annotations

import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

import typer
from PIL import Image

from foveate.run import load
from foveate.views import find
from foveate.views.options import Question
from screenshots import chromium, served

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
SENTENCE = "The princesses choose a beautiful important message."
STEP = {"block": "decoder.cross_attention", "layer": 0, "head": 1}
WORD = "message"  # whose query the film follows
MILLISECONDS, LAST = 900, 3000  # of a stage, and of the whole
WIDTH = 1280


def main(run: Path, out: Path = PICTURES) -> None:
    """Write map, walk and studio for each colour scheme, and say how large they are."""
    out.mkdir(exist_ok=True)
    loaded = load(run)
    with TemporaryDirectory() as folder, served([run]) as address, chromium() as browser:
        pages = {}
        for name, fields in (("attention", {}), ("steps", STEP)):
            question = Question.parse({"text": SENTENCE, **fields})
            pages[name] = find(name).draw([loaded], question).save(Path(folder) / f"{name}.html")
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": WIDTH, "height": 800}, color_scheme=scheme
            )
            page = context.new_page()
            page.goto(pages["attention"].as_uri())
            page.wait_for_selector("canvas")
            save([shot(page, ".fv-body")], out / f"map-{scheme}.webp")
            page.goto(pages["steps"].as_uri())
            save(film(page), out / f"walk-{scheme}.webp")
            place = {"run": run.resolve().name, "text": SENTENCE, "view": "attention"}
            page.goto(f"{address}#/inspect?{urlencode(place)}")
            page.wait_for_selector('[data-testid="view-attention"][data-status="done"]')
            page.wait_for_selector('[data-status="working"]', state="detached")
            page.wait_for_timeout(800)
            save([page.screenshot()], out / f"studio-{scheme}.webp")
            context.close()


def film(page: Any) -> list[bytes]:
    """The stages of one query, each when it comes."""
    query = page.get_by_label("query", exact=True)
    labels = query.locator("option").all_inner_texts()
    query.select_option(next(str(k) for k, label in enumerate(labels) if WORD in label))
    frames = []
    for stage in range(page.locator(".fv-step").count()):
        page.get_by_label("stage", exact=True).fill(str(stage))
        page.wait_for_timeout(400)
        frames.append(shot(page, ".fv-body"))
    return frames


def shot(page: Any, selector: str) -> bytes:
    """A part of a page as PNG."""
    picture: bytes = page.locator(selector).first.screenshot()
    return picture


def save(frames: list[bytes], path: Path) -> None:
    """One picture, or a film of several, as WebP."""
    first, *others = (Image.open(io.BytesIO(frame)).convert("RGB") for frame in frames)
    durations = [MILLISECONDS] * len(others) + [LAST]
    film: dict[str, Any] = {"save_all": True, "append_images": others, "duration": durations}
    first.save(path, quality=72, method=6, loop=0, **(film if others else {}))
    print(f"{path}  {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    typer.run(main)
