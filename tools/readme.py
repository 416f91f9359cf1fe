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
from matplotlib.patches import Patch
from PIL import Image, ImageOps

from screenshots import chromium

ROOT = Path(__file__).parent.parent
PICTURES, RESULTS = ROOT / "docs" / "pictures", ROOT / "docs" / "results"
COLOURS = {  # text, ours, others
    "light": ("#1f2328", "#0969da", "#afb8c1"),
    "dark": ("#e6edf3", "#4493f8", "#545d68"),
}
RUNS = {  # bars of training by precision: the row of a comparison, and what it is called
    "fp32": {
        "foveate, fp32": "foveate",
        "torch.nn.Transformer, fp32, bucketed": "torch.nn.Transformer",
        "OpenNMT-py, fp32": "OpenNMT-py",
        "Eole, fp32": "Eole",
        "HF, fp32, grouped by length": "Hugging Face Trainer",
        "JoeyNMT, fp32": "JoeyNMT",
    },
    "bf16": {  # the other trainers ran in fp32 only
        "foveate, bf16": "foveate",
        "torch.nn.Transformer, bf16 autocast, bucketed": "torch.nn.Transformer",
        "HF, bf16 autocast, grouped by length": "Hugging Face Trainer",
    },
}
PROGRAMS = ("foveate", "CTranslate2")
SEARCHES = {"greedy, batch 32": "greedy, batches of 32", "beam 5, one by one": "beam 5, one by one"}
WIDTH, HEIGHT = 1280, 1010  # of the window in which the page is seen


@dataclass
class Bars:
    """A part of the chart: what is measured, and the figure of each program."""

    title: str
    values: dict[str, float]


def main(page: Annotated[Path | None, typer.Argument()] = None, out: Path = PICTURES) -> None:
    """Write the chart, and of a page a picture for each colour scheme."""
    parts, caption = chart()
    for scheme in COLOURS:
        path = out / f"chart-{scheme}.svg"
        draw(parts, caption, scheme, path)
        print(f"{path}  {path.stat().st_size / 1000:.0f} kB", flush=True)
    if page is not None:
        with chromium() as browser:
            for scheme in COLOURS:
                shot(browser, page, scheme, out / f"page-{scheme}.webp")


def chart() -> tuple[list[Bars], str]:
    """The parts that were measured on one machine at one commit, and where that was.

    Training comes first. Translation is drawn beside it as soon as both were measured together.
    """
    train, decode = comparison("peers-train-small"), comparison("peers-decode-small")
    medians = {row["said"]: row["median"] for row in train["rows"]}
    parts = []
    for precision, rows in RUNS.items():
        values = {name: medians[row] for row, name in rows.items()}
        values = dict(sorted(values.items(), key=lambda each: -each[1]))
        parts.append(Bars(f"Training in {precision}: target tokens per second", values))
    machine = train["machine"]
    if all(machine[key] == decode["machine"][key] for key in ("cpu", "commit")):
        medians = {row["said"]: row["median"] for row in decode["rows"]}
        for search, said in SEARCHES.items():
            values = {name: best(medians, f"{name}, int8", search) for name in PROGRAMS}
            parts.append(Bars(f"Translation, int8, {said}: sentences per second", values))
    cores = f"{machine['cores']} cores of an {machine['cpu'].replace('(R)', '')}"
    ceilings = train["ceilings_gflops"]
    fast = " with AMX" if ceilings["bf16"] > 4 * ceilings["fp32"] else ""
    return parts, (
        "Higher is better. The same Transformer (7.6 million parameters) on Multi30k, English to "
        f"French,\n{cores}{fast}, no GPU; medians of {train['rounds']} alternating windows,\n"
        f"{machine['date']}. Programs without a bar in bf16 were only measured in fp32."
    )


def best(decode: dict[str, dict[str, float]], program: str, search: str) -> float:
    """The highest figure of a program, of those with one process and with two."""
    return max(row[search] for said, row in decode.items() if said.startswith(program))


def comparison(name: str) -> dict[str, Any]:
    """A comparison with other programs, without the rows of programs that failed."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return result | {"rows": [row for row in result["rows"] if "median" in row]}


def draw(parts: list[Bars], caption: str, scheme: str, path: Path) -> None:
    """Bars below each other, each part with a scale of its own; the same bytes each time."""
    text, own, other = COLOURS[scheme]
    heights = [len(part.values) for part in parts]
    height = 0.24 * sum(heights) + 0.35 * len(parts) + 0.8
    with plt.rc_context({"svg.fonttype": "path", "svg.hashsalt": "foveate", "font.size": 10.5}):
        figure, axes = plt.subplots(
            len(parts), 1, figsize=(8.6, height), height_ratios=heights, squeeze=False
        )
        for axis, part in zip(axes.flat, parts, strict=True):
            names, values = list(part.values), list(part.values.values())
            colours = [own if name.startswith("foveate") else other for name in names]
            axis.barh(names, values, color=colours, height=0.72)
            axis.set_ylim(len(names) - 0.5, -0.5)
            axis.set_xlim(0, max(max(each.values.values()) for each in parts) * 1.12)
            axis.set_title(part.title, loc="left", fontsize=11, color=text, pad=4, weight="bold")
            for place, value in enumerate(values):
                axis.text(value, place, f" {value:,.0f}", va="center", color=text)
            axis.tick_params(colors=text, length=0)
            axis.set_xticks([])
            axis.set_frame_on(False)
        keys = [Patch(color=own, label="foveate"), Patch(color=other, label="other programs")]
        axes.flat[0].legend(handles=keys, loc="lower right", frameon=False, labelcolor=text)
        figure.text(0.01, 0.02, caption, color=text, fontsize=9.5, va="bottom")
        figure.subplots_adjust(
            left=0.26, right=0.99, top=1 - 0.3 / height, bottom=0.74 / height, hspace=0.5
        )
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
