"""How fast a browser draws maps of attention: our pages, and BertViz on the same maps.

    python benchmarks/drawn.py [--copies FOLDER] [--repeats 5]

Each page is opened from a file in Chromium with software rendering. ``ready`` is the time from the
start of navigation to the frame in which everything is drawn and answers; ``again`` the time to
draw all maps anew (other colours); ``point`` that from moving to another cell to its frame.

BertViz (``pip install bertviz``) loads RequireJS, d3 and jQuery from cdnjs.cloudflare.com. The
FOLDER has them as npm has them (require.min.js of requirejs@2.3.6, d3.min.js of d3@5.7.0,
jquery.min.js of jquery@2.1.1: npm has no 2.0.0); they are handed over without any delay of a
network. Without FOLDER only the size of its files is measured.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typer import Option

import harness
from foveate.cli.doctor import find_browser
from foveate.draw import page
from foveate.draw.drawings import AttentionDrawing, Block, Numbers

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
LAYERS, HEADS = 6, 8
PATIENCE = 300  # seconds for a page

# When the condition first holds in a frame, the time after that frame is painted.
WATCH = """() => {
  const look = () => CONDITION
    ? setTimeout(() => { window.ready = performance.now(); })
    : requestAnimationFrame(look);
  requestAnimationFrame(look);
}"""
AGAIN = """() => new Promise((done) => {
  const start = performance.now();
  const other = document.querySelector('input[type=radio][value=absolute]');
  (other.checked ? document.querySelector('input[value=row]') : other).click();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
})"""
POINT = """() => new Promise((done) => {
  const start = performance.now();
  document.querySelector('.fv-cells[role]').dispatchEvent(
    new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
})"""


def maps(words: int, layers: int = LAYERS, heads: int = HEADS) -> np.ndarray:
    """Weights (L, H, T, T) that look as trained ones do: near the diagonal, some spread."""
    rng = np.random.default_rng(words)
    far = np.abs(np.arange(words)[:, None] - np.arange(words))
    scores = rng.gumbel(size=(layers, heads, words, words)) - far / rng.uniform(
        1, 20, (layers, heads, 1, 1)
    )
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result: np.ndarray = (weights / weights.sum(-1, keepdims=True)).astype(np.float32)
    return result


def ours(weights: np.ndarray) -> str:
    labels = [f"word{k}" for k in range(weights.shape[-1])]
    layers = [Numbers.weights(heads) for heads in weights]
    block = Block(name="self_attention", rows=labels, columns=labels, layers=layers)
    return page.drawn([AttentionDrawing(title="maps", blocks=[block])])


def bertviz(weights: np.ndarray, view: str) -> str:
    """The HTML that BertViz makes of the same maps."""
    import bertviz as package
    import torch

    layers = [torch.from_numpy(heads)[None] for heads in weights]
    words = [f"word{k}" for k in range(weights.shape[-1])]
    with contextlib.redirect_stdout(io.StringIO()):
        made = getattr(package, view)(layers, words, html_action="return")
    return f'<!doctype html><html><meta charset="utf-8"><body>{made.data}</body></html>'


def lines(view: str, words: int) -> str:
    """The condition under which BertViz has drawn all that it draws at first."""
    count = words * words * HEADS * (LAYERS if view == "model_view" else 1)
    return f"document.querySelectorAll('svg line').length >= {count}"


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        yield browser
        browser.close()


def opened(browser: Any, path: Path, condition: str, copies: Path | None) -> tuple[Any, float]:
    """A page, and milliseconds until the condition held."""
    tab = browser.new_page(viewport={"width": 1280, "height": 800})
    tab.set_default_timeout(1000 * PATIENCE)
    if copies is not None:
        tab.route("https://cdnjs.cloudflare.com/**", lambda route: route.fulfill(
            path=copies / (route.request.url.rpartition("/")[2]), content_type="text/javascript"
        ))  # fmt: skip
    tab.add_init_script(f"({WATCH.replace('CONDITION', condition)})()")
    tab.goto(path.as_uri(), wait_until="commit")
    end = time.monotonic() + PATIENCE
    while (ready := tab.evaluate("window.ready")) is None:  # no eval: our pages forbid it
        if time.monotonic() > end:
            raise TimeoutError(f"{path.name}: not drawn within {PATIENCE} s")
        time.sleep(0.05)
    return tab, ready


def measured(browser: Any, path: Path) -> dict[str, float]:
    """Milliseconds of one of our pages."""
    tab, ready = opened(browser, path, "document.querySelector('.fv-reading b')", None)
    again = [tab.evaluate(AGAIN) for _ in range(4)]
    point = [tab.evaluate(POINT) for _ in range(8)]
    tab.close()
    return {"ready": ready, "again": again[0], "again_warm": statistics.median(again[1:]),
            "point": statistics.median(point)}  # fmt: skip


def middle(results: list[dict[str, float]]) -> dict[str, Any]:
    """Medians of repeated measurements, with all of the first."""
    medians = {
        f"{key}_ms": round(statistics.median(item[key] for item in results), 1)
        for key in results[0]
    }
    return {**medians, "all_ready_ms": [round(item["ready"]) for item in results]}


def main(
    copies: Annotated[Path | None, Option(help="folder of what BertViz loads from its CDN")] = None,
    repeats: int = 5,
    words: Annotated[list[int], Option(help="beside BertViz; may be repeated")] = [30, 100],  # noqa: B006
) -> None:
    result: dict[str, Any] = {"layers": LAYERS, "heads": HEADS}
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        place = Path(folder)
        result["browser"] = browser.version
        result["ours"] = [own(browser, place, count, repeats) for count in (30, 100, 256)]
        result["ours"].append(own(browser, place, 1000, repeats, layers=1, heads=1))
        result["beside"] = [beside(browser, place, count, copies, repeats) for count in words]
    print(harness.write("drawn", result))


def own(browser: Any, place: Path, words: int, repeats: int, **size: int) -> dict[str, Any]:
    path = place / f"ours{words}.html"
    path.write_text(ours(maps(words, **size)), "utf-8")
    result = middle([measured(browser, path) for _ in range(repeats)])
    size_of_maps = {"words": words, "layers": LAYERS, "heads": HEADS} | size
    print(size_of_maps | result, flush=True)
    return {**size_of_maps, "bytes": path.stat().st_size, **result}


def beside(
    browser: Any, place: Path, words: int, copies: Path | None, repeats: int
) -> dict[str, Any]:
    """Our page and both views of BertViz on the same maps, one after the other, repeated."""
    weights, ready = maps(words), "document.querySelector('.fv-reading b')"
    pages = {"ours": (ours(weights), ready)} | {
        view: (bertviz(weights, view), lines(view, words)) for view in ("head_view", "model_view")
    }
    shared = sum(file.stat().st_size for file in copies.iterdir()) if copies else None
    result: dict[str, Any] = {"words": words, "bytes_from_cdn_of_bertviz": shared}
    times: dict[str, list[float]] = {name: [] for name in pages}
    for name, (text, _) in pages.items():
        (place / f"{name}{words}.html").write_text(text, "utf-8")
        result[name] = {"bytes": len(text.encode())}
    for _ in range(repeats if copies else 0):
        for name, (_, condition) in pages.items():
            tab, took = opened(browser, place / f"{name}{words}.html", condition, copies)
            tab.close()
            times[name].append(took)
            print(words, name, round(took), flush=True)
    for name, all_of in times.items():
        if all_of:
            result[name] |= {"ready_ms": round(statistics.median(all_of), 1),
                            "all_ready_ms": [round(item) for item in all_of]}  # fmt: skip
            result[name]["times_ours"] = round(
                statistics.median(all_of) / statistics.median(times["ours"]), 1
            )
    return result


if __name__ == "__main__":
    harness.run(main)
