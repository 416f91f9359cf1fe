"""Which lines of a scene pass behind a box, or close to one that is not an end of theirs."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from foveate.look.draw.scene import SceneDrawing, SceneEdge, SceneNode, SceneStop

NEAR, STEP, ENDS = 9.0, 3.0, 14.0  # units of a stop: 8 pixels of a slide; between points; at ends
Points = NDArray[np.float64]


def sampled(edge: SceneEdge) -> Points:
    """Return points of a line or of a cubic curve, a few units from each other."""
    points = np.array(edge.points, dtype=np.float64)
    if edge.weight is not None and len(points) == 4:
        t = np.linspace(0, 1, 200)[:, None]
        shares = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3
        return np.sum([s * p for s, p in zip(shares, points, strict=True)], axis=0)
    parts = []
    for a, b in pairwise(points):
        count = 2 + int(np.hypot(*(b - a)) / STEP)
        parts.append(np.linspace(a, b, count))
    return np.concatenate(parts)


def distances(points: Points, node: SceneNode) -> Points:
    """Return how far points are from a box, 0 inside it."""
    corner, size = np.array(node.box[:2]), np.array(node.box[2:])
    away = np.maximum(np.maximum(corner - points, points - corner - size), 0)
    return np.hypot(away[:, 0], away[:, 1])


def squeezed(drawing: SceneDrawing, stop: SceneStop) -> Iterator[tuple[str, str]]:
    """Yield each line of a stop with a box that it is behind or too close to."""
    unit = stop.box[2] / 1240
    shown = list(drawing.shown(stop))
    boxes = [n for n in shown if isinstance(n, SceneNode) and n.form in ("box", "plus")]
    for edge in (e for e in shown if isinstance(e, SceneEdge)):
        points = sampled(edge)
        for box in boxes:
            away = distances(points, box)
            if min(away[0], away[-1]) > ENDS * unit and away.min() < NEAR * min(1.0, unit):
                yield edge.name, box.name
