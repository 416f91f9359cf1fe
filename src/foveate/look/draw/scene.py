"""A scene: the boxes of a model at fixed places, the numbers inside them, and camera stops.

The browser's renderer, which also draws the insides, is ``web/src/core/scene.ts``. The whole is
`WIDE` × `HIGH`; each stop shows a rectangle of these proportions.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from math import ceil
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import Circle, FancyBboxPatch, Patch, PathPatch
from matplotlib.path import Path
from pydantic import Field

import foveate.look.draw.colors as colors
import foveate.look.draw.figures as figures
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.parts import Arrays, DrawingPart, Floats, Label, Numbers, Text
from foveate.look.draw.terminal import cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, HIGH, TYPE, LINE = 1240.0, 560.0, 28.0, 30.0  # of a stop, its letters, a line of numbers
CELL, BESIDE = 50.0, 236.0  # height of a box in a row, width of a title beside it
INCHES = 6.2  # width of a stop in a figure
Box = tuple[float, float, float, float]  # left, top, width, height


class SceneNode(DrawingPart):
    """A box at its place, what it computes (``detail``), and when it is drawn.

    ``texts`` are the numbers in it, line by line, ``level`` is how strongly it is filled, from 0
    to 1. A word is written as it is, a label with its indices low. A node with a ``tag`` is drawn
    at the stops that show this tag, others at all of them.
    """

    name: str
    label: Text = ""
    form: Literal["box", "group", "word", "label", "plus", "frame", "pixel"] = "box"
    box: Box
    hue: int | None = None
    tag: str = ""
    detail: list[Text] = Field(default_factory=list)
    texts: list[Text] = Field(default_factory=list)
    level: float = 0.0


class SceneEdge(DrawingPart):
    """An arrow through points, or a curve as wide as its ``weight`` from 0 to 1."""

    name: str
    points: list[tuple[float, float]]
    weight: float | None = None
    hue: int | None = None
    tag: str = ""


class ScenePanel(DrawingPart):
    """The inside of a node: an attention's numbers by stage, a recurrent cell's, or others'.

    ``rows`` and ``columns`` label queries and keys; other blocks have steps or positions as rows,
    and no columns. ``values`` are (H, T, N) or (H, T, S), ``reads`` the stages that each is
    computed from, ``letters`` what they are called, ``tokens`` name the numbers of a stage at each
    position, and ``units`` are drawn first. ``score`` and ``normalizer`` are kinds, if all that
    the scores and weights are computed from is drawn.
    """

    node: str
    rows: list[Label]
    columns: list[Label] = Field(default_factory=list)
    values: dict[str, Numbers]
    equations: dict[str, Text]
    reads: dict[str, list[str]] = Field(default_factory=dict)
    letters: dict[str, Label] = Field(default_factory=dict)
    tokens: dict[str, list[list[Label]]] = Field(default_factory=dict)
    units: dict[str, list[int]] = Field(default_factory=dict)
    score: str = ""
    normalizer: str = ""
    head: int = 0
    row: int = 0


class SceneStop(DrawingPart):
    """A camera stop: its rectangle, the tags that it shows, and the names that it lights.

    A name lights everything whose name begins with it. In a ``panel`` the browser draws the inside.
    """

    name: str
    caption: Text
    box: Box = (0.0, 0.0, WIDE, HIGH)
    shows: list[str] = Field(default_factory=list)
    lit: list[str] = Field(default_factory=list)
    panel: int | None = None


class SceneDrawing(Drawing):
    """A model as one scene, which is visited at ``stops``."""

    kind: Literal["scene"] = "scene"
    nodes: list[SceneNode]
    edges: list[SceneEdge]
    panels: list[ScenePanel]
    stops: list[SceneStop]

    def arrays(self) -> Arrays:
        """Return the numbers of panels by node and stage, of boxes, and the weights of curves.

        Of a scene without numbers, it returns the points of its arrows.
        """
        stages = [(f"{p.node}: {name}", v) for p in self.panels for name, v in p.values.items()]
        weights = {e.name: np.array(e.weight) for e in self.edges if e.weight is not None}
        texts = {n.name: np.array(n.texts) for n in self.nodes if n.texts and n.form == "box"}
        numbers = {name: values.array for name, values in stages} | weights | texts
        return numbers or {edge.name: np.array(edge.points) for edge in self.edges}

    def shown(self, stop: SceneStop) -> Iterator[SceneNode | SceneEdge]:
        """Yield what a stop shows, from back to front."""
        groups = (node for node in self.nodes if node.form == "group")
        others = (node for node in self.nodes if node.form != "group")
        for some in (groups, self.edges, others):
            yield from (each for each in some if each.tag in ("", *stop.shows))

    def figure(self) -> Figure:
        """Draw the stops outside panels, two in a row, each above its caption."""
        stops = [stop for stop in self.stops if stop.panel is None]
        across = min(2, len(stops))
        wide, tall = INCHES + 0.2, INCHES * HIGH / WIDE + 0.55
        made, ax = figures.page(across * wide, tall * ceil(len(stops) / across) + 0.4)
        figures.write(ax, 0.1, 0.2, self.title, size=figures.FONT_SIZE + 2)
        for number, stop in enumerate(stops):
            x, y = number % across * wide + 0.1, number // across * tall + 0.4
            still = _Still(ax, stop, (x, y))
            for each in self.shown(stop):
                still.draw(each)
            for row, line in enumerate(textwrap.wrap(stop.caption, 96)[:2]):
                figures.write(ax, x, y + tall - 0.45 + 0.16 * row, line)
        return made

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Return the caption of each stop, and what the boxes of the model compute."""
        stops = [stop for stop in self.stops if stop.caption.split() != self.caption.split()]
        lines = [f"{k}. {stop.name}: {stop.caption}" for k, stop in enumerate(stops, 1)]
        lines += [f"{n.name}: {' · '.join(n.detail)}" for n in self.nodes if n.detail]
        wrapped = (textwrap.wrap(line, width or 100, subsequent_indent="   ") for line in lines)
        shown = [self.title, *("\n".join(each) for each in wrapped), self.caption_in(width)]
        return "\n".join([*shown, *self.notes]).rstrip()


class SceneMaker:
    """Collects the nodes, edges, panels and stops of a scene."""

    def __init__(self) -> None:
        self.nodes: list[SceneNode] = []
        self.edges: list[SceneEdge] = []
        self.panels: list[ScenePanel] = []
        self.stops: list[SceneStop] = []
        self.notes: list[str] = []

    @property
    def boxes(self) -> dict[str, Box]:
        """The box of each node, by its name."""
        return {node.name: node.box for node in self.nodes}

    def node(self, name: str, label: str, box: Box, **more: object) -> None:
        fields = {"name": name, "label": label, "box": box, **more}
        self.nodes.append(SceneNode.model_validate(fields))

    def label(self, name: str, text: str, box: Box, **more: object) -> None:
        """Write a text without a box around it."""
        self.node(name, text, box, form="label", **more)

    def edge(self, name: str, *points: tuple[float, float], **more: object) -> None:
        fields = {"name": name, "points": points, "tag": "stream", **more}
        self.edges.append(SceneEdge.model_validate(fields))

    def column(
        self, name: str, head: str, box: Box, cells: Sequence[str], levels: Sequence[float] = (),
        **more: object,
    ) -> None:  # fmt: skip
        """Write cells below each other in boxes, in a rectangle, under a heading."""
        x, y, wide, pitch = *box[:3], box[3] / len(cells)
        tall, tag = min(72.0, pitch - 10), str(more.get("tag", ""))
        room = max(wide, 16.0 * len(head))
        over = x + (wide - room) / 2, y - 50, room, 44.0
        self.node(f"{name} head", head, over, form="label", tag=tag)
        for k, cell in enumerate(cells):
            place = x, y + pitch * (k + 0.5) - tall / 2, wide, tall
            fill = {"level": levels[k] if levels else 0.25 * ("hue" in more)}
            self.node(f"{name} {k}", "", place, texts=cell.split("\n"), **fill, **more)

    def link(self, start: str, end: str, **more: object) -> None:
        """Draw an arrow from the right of a box to the left of another, or a curve by weight."""
        boxes = self.boxes
        (x, y, wide, high), (u, v, _, tall) = boxes[start], boxes[end]
        a, b, middle = (x + wide, y + high / 2), (u, v + tall / 2), (x + wide + u) / 2
        curve = [(middle, a[1]), (middle, b[1])] if "weight" in more else []
        self.edge(f"{start} to {end}", a, *curve, b, **more)

    def stop(
        self, name: str, caption: str, shows: Sequence[str], lit: Sequence[str] = (), **more: object
    ) -> None:
        fields = {"name": name, "caption": caption, "shows": shows, "lit": lit, **more}
        self.stops.append(SceneStop.model_validate(fields))

    def row(
        self, name: str, titles: Sequence[str], words: Sequence[str], end: float,
        wide: float = WIDE, hues: Sequence[int] = (), up: float = 84.0,
    ) -> Floats:  # fmt: skip
        """Write words right of a title, spread evenly or, without room, by letters; return middles.

        Words with ``hues`` are in boxes. The middle of the title is ``up`` from the end.
        """
        left = BESIDE if titles else 0.0
        sizes = np.array([1.4 + len(word) for word in words])
        even = 15 * sizes.max() < (wide - left) / len(words)
        ends = np.append(0.0, np.cumsum(np.ones(len(words)) if even else sizes))
        ends = left + (wide - left) * ends / ends[-1]
        self.node(name, "", (0, end - up - 48, left, 96), form="label", texts=titles)
        for k, word in enumerate(words):
            wide = min(ends[k + 1] - ends[k] - 4, 17 * len(word) + 28 if hues else WIDE)
            box = (ends[k] + ends[k + 1] - wide) / 2, end - 44, wide, 40.0
            fill = {"hue": hues[k], "level": 0.25} if hues else {"form": "word"}
            self.node(f"{name} word {k}", word, box, **fill)
        return (ends[:-1] + ends[1:]) / 2

    def cells(self, name: str, middles: Floats, top: float, wide: float, texts: Sequence[str],
              levels: Sequence[float] | Floats, **more: object) -> None:  # fmt: skip
        """Draw a box with a text at each of some middles, filled by its level."""
        for k, (x, text, level) in enumerate(zip(middles, texts, levels, strict=True)):
            box = x - wide / 2, top, wide, CELL
            self.node(f"{name} {k}", "", box, texts=[text], level=level, **more)

    def chain(self, name: str, middles: Floats, half: Floats | float, y: float, sign: int = 1,
              **more: object) -> None:  # fmt: skip
        """Draw arrows from box to box, which extend ``half`` to each side; ``sign`` is ±1."""
        for k, pair in enumerate(zip((middles + half)[:-1], (middles - half)[1:], strict=True)):
            self.edge(f"{name} {k}", *[(x, y) for x in pair][::sign], tag="", **more)

    def fan(self, name: str, middles: Floats, ends: tuple[float, float], weights: Floats,
            bend: float = 0.0, **more: object) -> None:  # fmt: skip
        """Draw a curve from each middle s up to each t, as wide as its weight (T, S), if any."""
        heights = np.interp([0, bend, 1 - bend, 1], [0, 1], ends)
        for t, s in np.argwhere(weights).tolist():
            points = zip(middles[[s, s, t, t]], heights, strict=True)
            self.edge(f"{name} {s} {t}", *points, tag="", weight=weights[t, s], **more)

    def _pieces(self, edge: SceneEdge) -> list[SceneEdge]:
        """Return a straight arrow as its pieces between the boxes that it leads through."""
        points = np.array(edge.points)
        along = int(np.ptp(points, axis=0)[0] < 1)  # 1 is down or up
        if edge.weight is not None or np.ptp(points, axis=0)[1 - along] >= 1:
            return [edge]
        (start, end), at, inside = points[[0, -1], along], points[0, 1 - along], list[Floats]()
        for node in self.nodes:
            (near, beside), (far, past) = (np.roll(x, -along) for x in np.reshape(node.box, (2, 2)))
            is_crossed = min(start, end) < near and near + far < max(start, end)
            if node.form in ("box", "plus") and is_crossed and beside < at < beside + past:
                inside.append(np.array([near, near + far]))
        cuts = np.sort(np.concatenate([[start, end], *inside]))[:: 1 if start < end else -1]
        ends = [[(at, cut) if along else (cut, at) for cut in pair] for pair in cuts.reshape(-1, 2)]
        names = [edge.name, *(f"{edge.name} piece {k}" for k in range(1, len(ends)))]
        pairs = zip(names, ends, strict=True)
        return [edge.model_copy(update={"name": n, "points": pair}) for n, pair in pairs]

    def drawing(
        self, title: str, stops: list[SceneStop] | None = None, caption: str = ""
    ) -> SceneDrawing:
        """Return the drawing, of some of the stops; a scene without stops has one, its caption."""
        if not self.stops:
            self.stop("all", caption, ["stream"])
        edges = [piece for edge in self.edges for piece in self._pieces(edge)]
        return SceneDrawing(
            title=title, caption=caption, nodes=self.nodes, edges=edges, panels=self.panels,
            stops=self.stops if stops is None else stops, notes=self.notes,
        )  # fmt: skip


class _Still:
    """One stop on a page of matplotlib, whose upper left corner is at a place in inches."""

    def __init__(self, ax: Axes, stop: SceneStop, corner: tuple[float, float]) -> None:
        self.ax, self.stop, self.corner, self.scale = ax, stop, corner, INCHES / stop.box[2]
        high = INCHES * HIGH / WIDE
        self.frame = FancyBboxPatch(corner, INCHES, high, "square,pad=0", fc="none", ec="none")
        ax.add_patch(self.frame)

    def point(self, x: float, y: float) -> tuple[float, float]:
        left, top = self.stop.box[:2]
        return self.corner[0] + (x - left) * self.scale, self.corner[1] + (y - top) * self.scale

    def _add(self, patch: Patch, alpha: float) -> None:
        patch.set_alpha(alpha)
        self.ax.add_patch(patch)
        patch.set_clip_path(self.frame)

    def draw(self, part: SceneNode | SceneEdge) -> None:
        color = figures.NOTE if part.hue in (None, colors.Hue.LAYER) else colors.line(part.hue or 0)
        lit = any(f"{part.name} ".startswith(f"{name} ") for name in self.stop.lit)
        alpha = 1.0 if lit or not self.stop.lit else 0.35
        if isinstance(part, SceneEdge):
            points = [self.point(*point) for point in part.points]
            curve = [Path.MOVETO, *[Path.LINETO if part.weight is None else Path.CURVE4] * 3]
            codes = (curve + [Path.LINETO] * len(points))[: len(points)]
            wide = 1.0 if part.weight is None else 0.3 + 5 * part.weight
            self._add(PathPatch(Path(points, codes), fc="none", ec=color, lw=wide), alpha)
            return
        (x, y), (w, h) = self.point(*part.box[:2]), [side * self.scale for side in part.box[2:]]
        if part.form == "plus":
            self._add(Circle((x + w / 2, y + h / 2), w / 2, fc="white", ec=color), alpha)
        elif part.form not in ("word", "label"):
            rounded = "round,pad=0,rounding_size=0.03"
            fill = [1 - 0.65 * part.level * (1 - share) for share in to_rgb(color)]
            self._add(FancyBboxPatch((x, y), w, h, rounded, fc=fill, ec=color, lw=1.4), alpha)
        size, is_group = 72 * INCHES / WIDE * TYPE, part.form == "group"
        place = (x + 0.06, y + 0.12) if is_group else (x + w / 2, y + h / 2)
        side, frame = "left" if is_group else "center", self.frame
        for row, text in enumerate(lines := part.texts or [part.label] * bool(part.label)):
            label = cut(text, max(2, int(w * 72 / size / 0.55)))
            y = place[1] + (row - (len(lines) - 1) / 2) * min(LINE * self.scale, h / len(lines))
            figures.write(
                self.ax, place[0], y, label, size=size, alpha=alpha, ha=side, clip_path=frame,
                clip_on=True,
            )  # fmt: skip
