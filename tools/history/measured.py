"""Pictures of figures that were measured: docs/results says how, by which commit, on what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from foveate.look.draw import colors
from foveate.look.draw.charts import DASHES, LinesDrawing, PanelGrid, line_chart
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.figures import FONT_SIZE, paint
from foveate.look.views.training import at
from history.drawing import Draw, OwnFigure, figure, plain

RESULTS = Path(__file__).parents[2] / "docs" / "results"
ATTENTION = {  # models of docs/results/multi30k-families.json
    "Transformer": "multi30k-en-fr",
    "RNN with attention": "multi30k-en-fr-rnnsearch",
    "RNN without, Cho": "multi30k-en-fr-no-attention-summary",
    "RNN without, Sutskever": "multi30k-en-fr-no-attention",
}
APART = (0, 0, 6, -6)  # points: the labels of the last two would overprint
KINDS = (
    "full, explicit",
    "full, fused",
    "linformer",
    "performer",
    "linear",
    "block_sparse",
    "local",
)


def result(name: str) -> Any:
    """A file of docs/results."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def horizon(folder: Path) -> LinesDrawing:
    """Fed back or all at once: error against horizon on ETTh1."""
    patches, recurrent = (result(f"etth1-{name}")["mse_by_step"] for name in ("patch", "rnn"))
    curves = {
        "RNN, predictions fed back": recurrent["forecast"],
        "RNN, given the true previous row": recurrent["teacher_forced"],
        "patches, all steps at once": patches["forecast"],
        "value one day ago": patches["seasonal_naive"],
    }
    steps = np.arange(1.0, 1 + len(patches["forecast"]))
    return line_chart(
        steps, {name: np.array(c) for name, c in curves.items()}, "hours ahead",
        "mean squared error, scaled", "ETTh1: the cost of feeding predictions back",
    )  # fmt: skip


def length(folder: Path) -> LinesDrawing:
    """Milliseconds of each kind of attention against the length."""
    results = result("attention-length")
    curves = {name: np.array(results["kinds"][name]["milliseconds"], dtype=float) for name in KINDS}
    return line_chart(
        np.array(results["lengths"], dtype=float),
        {name.replace("_", "-"): curve for name, curve in curves.items()},
        "length T", "milliseconds, forward and backward",
        "Time of one attention layer against length", "xy",
    )  # fmt: skip


def bleu_by_length(folder: Path) -> Drawing:
    """What is left of the BLEU of short sentences in long ones, with and without attention."""

    def draw() -> Figure:
        drawn = figure(3.6)
        ax = drawn.add_subplot()
        measured = result("multi30k-families")["chapters"]["Length of the source"]["BLEU"]
        groups = measured["labels"][:-1]  # the last has two sentences
        for number, (name, model) in enumerate(ATTENTION.items()):
            bleu = np.array(measured[model][: len(groups)])
            hue, dash = colors.line(number), DASHES[number]
            ax.plot(100 * bleu / bleu[0], color=hue, ls=dash, marker="o", lw=1.8, label=name)
            ax.annotate(
                f"BLEU {bleu[0]:.1f} → {bleu[-1]:.1f}", (len(groups) - 1, 100 * bleu[-1] / bleu[0]),
                xytext=(8, APART[number]), textcoords="offset points", size=FONT_SIZE, color=hue,
                va="center",
            )  # fmt: skip
        ax.set_xticks(range(len(groups)), groups, size=FONT_SIZE)
        ax.set(xlim=(-0.1, 2.7), ylim=(25, 104))
        ax.set_xlabel("source words", size=FONT_SIZE)
        ax.set_ylabel("% of the BLEU on 1–10 words", size=FONT_SIZE)
        ax.tick_params(labelsize=FONT_SIZE)
        ax.grid(color="#dddddd", linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
        drawn.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=FONT_SIZE)
        return drawn

    return OwnFigure(make=draw)


def learnt_attention(folder: Path) -> Drawing:
    """What every score has learnt to look at, with places that are written into embeddings."""

    def draw() -> Figure:
        saved = [
            item for item in result("learnt-attention")["models"] if item["encoder_sees"] != "all"
        ]
        scores, positions = (
            list(dict.fromkeys(o[key] for o in saved)) for key in ("score", "position")
        )
        drawn = figure(5.2)
        tasks = ("copy", "reverse")
        halves = dict(zip(tasks, drawn.subfigures(1, 2, width_ratios=(1.21, 1)), strict=True))
        axes = {task: halves[task].subplots(len(scores), len(positions)) for task in tasks}
        for item in saved:
            row, column = scores.index(item["score"]), positions.index(item["position"])
            ax = plain(axes[item["task"]][row, column])
            weights = np.array([line.split()[:-1] for line in item["map"]], np.float32)
            paint(ax, np.maximum(weights, 0.001), "absolute")  # 0 would be a cell that is hidden
            ax.set_aspect("equal")
            if row == 0:
                name = item["position"].replace("_", "\n")
                ax.set_title(name, size=FONT_SIZE - 1, rotation=30, ha="left", x=0.1)
            if column == 0 and item["task"] == "copy":
                label = item["score"].replace("_", "\n")
                ax.set_ylabel(label, size=FONT_SIZE - 1, rotation=0, ha="right", va="center")
        for task, half in halves.items():
            half.suptitle(task, size=FONT_SIZE + 1)
        return drawn

    return OwnFigure(make=draw)


def scaling_curve(folder: Path) -> PanelGrid:
    """Validation loss of five sizes, means over seeds: at equal data and at equal time."""
    curve = result("scaling-curve")
    panels = []
    for across in ("characters read", "CPU seconds"):
        points = {}
        for size, row in curve["sizes"].items():
            loss = np.mean(row["losses"], axis=0)
            cost = curve["batch"] if across == "characters read" else row["seconds_of_step"]
            points[f"D = {size}"] = cost * curve["every"] * np.arange(1.0, 1 + len(loss)), loss
        ends = [places[end] for places, _ in points.values() for end in (0, -1)]
        x = np.geomspace(min(ends), max(ends), 100)
        curves = {name: at(x, places, loss) for name, (places, loss) in points.items()}
        panels.append(line_chart(x, curves, across, "validation loss, nats per character", log="x"))
    return PanelGrid(panels=panels, title="Language models of five sizes on tiny-shakespeare")


def scores_by_minute(folder: Path) -> PanelGrid:
    """Validation figures of shipped configs by the minute of training, a line for each seed; the
    recipes of one task are in one panel. Trainings of less than two minutes are left out.
    """
    recipes: dict[str, dict[str, list[dict[str, float]]]] = {}
    for name, seeds in result("scores")["rows"].items():
        task = name.removesuffix("-small").removesuffix("-mamba").removesuffix("-tiny")
        for seed in seeds:
            if seed["validation"] and seed["minutes"] >= 2:
                kind = name.removeprefix(task).removeprefix("-")
                line = f"{kind}, seed {seed['seed']}".removeprefix(", ")
                recipes.setdefault(task, {})[line] = seed["validation"]
    panels = []
    for task, shown in recipes.items():
        figures = ("bleu", "exact_match", "accuracy", "wer", "mse", "perplexity", "loss")
        figure = next(key for key in figures if key in next(iter(shown.values()))[0])
        points = {
            line: np.array([(each["seconds"] / 60, each[figure]) for each in lines]).T
            for line, lines in shown.items()
        }
        x = np.unique(np.concatenate([minutes for minutes, _ in points.values()]))
        lines = {line: at(x, minutes, values) for line, (minutes, values) in points.items()}
        up = f"{figure.replace('_', ' ')}, validation"
        panels.append(line_chart(x, lines, "minutes", up, task))
    return PanelGrid(panels=panels)


DRAWN: dict[str, Draw] = {
    "scores-by-minute": scores_by_minute,
    "scaling-curve": scaling_curve,
    "learnt-attention": learnt_attention,
    "horizon": horizon,
    "attention-length": length,
    "bleu-by-length": bleu_by_length,
}
