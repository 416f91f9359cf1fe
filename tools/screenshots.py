"""Pictures of every page of the studio at three widths, for ``docs/studio``.

    python tools/screenshots.py RUN [RUN…] [--out docs/studio]

The first run is of the embedded grammar (``foveate quickstart --grammar``), so that every text in
the pictures is ours; beside it is a page of ``foveate compare``, and its data is found from the
working folder.
The page must have been built (``make web``); needs playwright and a Chromium.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer
import uvicorn
from PIL import Image
from typer import Option

from browser import find_browser
from foveate.studio.api import studio_application

SENTENCE = "She never smiles in the old kitchen."
HEIGHTS = {360: 780, 1280: 900, 2560: 1440}
DARK = ("inspect", 1280)
QUALITY = 72  # of WebP


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window, rendering in software."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=find_browser(), args=flags)
        yield browser
        browser.close()


@contextmanager
def served(runs: list[Path], lectures: Path | None = None) -> Iterator[str]:
    """The address of a studio of some runs."""
    app = studio_application(runs, lectures=lectures)
    config = uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join(10)


def pages(runs: list[str], text: str) -> dict[str, tuple[str, str]]:
    """The hash of each page, and what stands on it when it is whole."""
    first, requested = {"run": runs[0]}, {"run": runs[0], "text": text}
    chosen = {"block": "decoder.cross_attention", "row": 2}
    others = [("run", name) for name in runs[1:3]]
    return {
        "ask": (f"#/ask?{urlencode(requested)}", '[data-testid="answer"][data-status="done"]'),
        "inspect": (
            f"#/inspect?{urlencode([*requested.items(), *others, *chosen.items()])}",
            '[data-testid="view-attention"][data-status="done"]',
        ),
        "train": (
            f"#/train?{urlencode([*first.items(), *[('training', name) for name in runs]])}",
            '[data-testid="samples"]',
        ),
        "evaluate": (
            f"#/evaluate?{urlencode({**first, 'split': 'test', 'evaluation.most': 200})}",
            '[data-testid="evaluation"][data-status="done"]',
        ),
        "model": (f"#/model?{urlencode(first)}", '[data-testid="view-model"][data-status="done"]'),
        "compare": ("#/compare?chapter=2", '[data-testid="comparison"][data-status="done"]'),
        "demos": ("#/demos?demo=scaling", '[data-testid="demo"][data-status="done"]'),
        "lecture": ("#/lecture/romac/7", '[data-testid="lecture"][data-status="done"]'),
    }


def shoot(browser: Any, address: str, place: str, whole: str, width: int, scheme: str) -> bytes:
    """A page as PNG, once it is whole."""
    context = browser.new_context(
        viewport={"width": width, "height": HEIGHTS[width]}, color_scheme=scheme
    )
    page = context.new_page()
    page.goto(address + place)
    page.wait_for_selector(whole, timeout=300_000)
    page.wait_for_selector('[data-status="working"]', state="detached")
    page.wait_for_timeout(800)
    picture: bytes = page.screenshot()
    context.close()
    return picture


def main(
    runs: list[Path],
    out: Path = Path("docs/studio"),
    text: str = SENTENCE,
    only: Annotated[list[str] | None, Option(help="pages, such as inspect; repeated")] = None,
) -> None:
    """Write ``PAGE-WIDTH.webp`` for each page and width, and one page dark."""
    out.mkdir(parents=True, exist_ok=True)
    shown = pages([path.resolve().name for path in runs], text)
    with served(runs) as address, chromium() as browser:
        for name, (place, whole) in shown.items():
            if only and name not in only:
                continue
            for width in HEIGHTS:
                schemes = ("light", "dark") if (name, width) == DARK else ("light",)
                for scheme in schemes:
                    picture = shoot(browser, address, place, whole, width, scheme)
                    end = "-dark" if scheme == "dark" else ""
                    path = out / f"{name}-{width}{end}.webp"
                    Image.open(io.BytesIO(picture)).convert("RGB").save(
                        path, quality=QUALITY, method=6
                    )
                    print(f"{path}  {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    typer.run(main)
