"""The pictures of the README, light and dark, in ``docs/pictures``: a published page, and a chart.

    python tools/readme.py en-fr.html          # a page that `foveate publish` wrote
    python tools/readme.py                     # the chart alone, from docs/results

Needs matplotlib, and for the page playwright and a Chromium.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import matplotlib.pyplot as plt
import typer
from PIL import Image, ImageOps

from screenshots import chromium

ROOT = Path(__file__).parent.parent
PICTURES, RESULTS = ROOT / "docs" / "pictures", ROOT / "docs" / "results"
COLOURS = {  # text, ours, others
    "light": ("#1f2328", "#0969da", "#afb8c1"),
    "dark": ("#e6edf3", "#4493f8", "#545d68"),
}
PROGRAMS = ("foveate", "CTranslate2")
WIDTH, HEIGHT = 1280, 1010  # of the window in which the page is seen


@dataclass
class Bars:
    """A part of the chart: what is measured, and the figure of each program."""

    title: str
    values: dict[str, float]
    digits: int = 0


def main(page: Annotated[Path | None, typer.Argument()] = None, out: Path = PICTURES) -> None:
    """Write the chart, and of a page a picture for each colour scheme."""
    for scheme in COLOURS:
        path = out / f"chart-{scheme}.svg"
        draw(chart(), scheme, path)
        print(f"{path}  {path.stat().st_size / 1000:.0f} kB", flush=True)
    if page is not None:
        with chromium() as browser:
            for scheme in COLOURS:
                shot(browser, page, scheme, out / f"page-{scheme}.webp")


def chart() -> list[Bars]:
    """What docs/reference/speed.md and docs/guide/engine.md have in tables."""
    train = {row["said"]: row["median"] for row in rows("peers-train-small")}
    decode = {row["said"]: row["median"] for row in rows("peers-decode-small")}
    programs = json.loads((RESULTS / "engine-start.json").read_text("utf-8"))["programs"]
    names = ("foveate translate FILE", "CTranslate2")
    start = {short: programs[name] for short, name in zip(PROGRAMS, names, strict=True)}
    searches = {
        "greedy, batch 32": "batches of 32, greedy",
        "beam 5, one by one": "one by one, beam 5",
    }
    return [
        Bars(
            "Training, real target tokens a second",
            {
                "foveate, bf16": train["foveate, bf16"],
                "foveate, fp32": train["foveate, fp32"],
                "Hugging Face, bf16": train["HF, bf16 autocast, grouped by length"],
                "JoeyNMT, fp32": train["JoeyNMT, fp32"],
            },
        ),
        *(
            Bars(
                f"Sentences a second, int8, {said}",
                {name: best(decode, f"{name}, int8", search) for name in PROGRAMS},
            )
            for search, said in searches.items()
        ),
        Bars(
            "Memory while one line is translated, MB (less is better)",
            {name: program["megabytes"] for name, program in start.items()},
        ),
        Bars(
            "Installed with all that it needs, MB (less is better)",
            {name: program["installed_megabytes"] for name, program in start.items()},
        ),
        Bars(
            "From the command to the translation of one line, seconds (less is better)",
            {name: program["seconds"] for name, program in start.items()},
            digits=2,
        ),
    ]


def best(decode: dict[str, dict[str, float]], program: str, search: str) -> float:
    """The highest figure of a program, of those with one process and with two."""
    return max(row[search] for said, row in decode.items() if said.startswith(program))


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of a comparison with other programs."""
    result: list[dict[str, Any]] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))["rows"]
    return [row for row in result if "median" in row]


def draw(parts: list[Bars], scheme: str, path: Path) -> None:
    """Bars below each other, each part with a scale of its own; the same bytes each time."""
    text, own, other = COLOURS[scheme]
    heights = [len(part.values) for part in parts]
    size = (8.6, 0.2 * sum(heights) + 0.3 * len(parts))
    with plt.rc_context({"svg.fonttype": "path", "svg.hashsalt": "foveate", "font.size": 10.5}):
        figure, axes = plt.subplots(len(parts), 1, figsize=size, height_ratios=heights)
        for axis, part in zip(axes, parts, strict=True):
            names, values = list(part.values), list(part.values.values())
            colours = [own if name.startswith("foveate") else other for name in names]
            axis.barh(names, values, color=colours, height=0.72)
            axis.set_ylim(len(names) - 0.5, -0.5)
            axis.set_xlim(0, max(values) * 1.12)
            axis.set_title(part.title, loc="left", fontsize=10.5, color=text, pad=3, weight="bold")
            for place, value in enumerate(values):
                said = f" {value + 1e-9:,.{part.digits}f}"  # a half is rounded up
                axis.text(value, place, said, va="center", color=text)
            axis.tick_params(colors=text, length=0)
            axis.set_xticks([])
            axis.set_frame_on(False)
        figure.subplots_adjust(left=0.19, right=0.99, top=0.955, bottom=0.01, hspace=0.7)
        figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)


def shot(browser: Any, page: Path, scheme: str, path: Path) -> None:
    """The first screen of a published page, once its first example is answered, as WebP."""
    context = browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme, device_scale_factor=1.5
    )
    tab = context.new_page()
    tab.goto(page.resolve().as_uri())
    tab.wait_for_selector("canvas, svg")
    tab.wait_for_timeout(3000)
    picture = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
    picture = ImageOps.expand(picture, 2, COLOURS[scheme][2])  # a frame
    picture.save(path, quality=72, method=6)
    print(f"{path}  {path.stat().st_size / 1000:.0f} kB", flush=True)
    context.close()


if __name__ == "__main__":
    typer.run(main)
