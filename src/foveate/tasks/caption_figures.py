"""Figures of captions against several references, and what a caption without a model would get."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foveate.data.image import Album

SIDE = 8  # cells of the thumbnails by which pictures are compared


def bleu(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[float, str]:
    """BLEU-4 of a corpus where each output has several references, lower case, by sacreBLEU.

    (Papineni, 2002; Post, 2018.) Outputs may have different numbers of references.
    """
    from sacrebleu.metrics.bleu import BLEU

    if len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs, but references for {len(references)}")
    most = max(map(len, references), default=0)
    streams = [[r[n] if n < len(r) else None for r in references] for n in range(most)]
    metric = BLEU(lowercase=True)
    score = metric.corpus_score(list(outputs), streams)  # type: ignore[arg-type]
    return float(score.score), str(metric.get_signature())


def nearest_captions(known: Album, asked: Album) -> list[str]:
    """The first caption of the most similar known picture: nearest thumbnail, mean removed."""
    before, wanted = _thumbnails(known.pixels), _thumbnails(asked.pixels)
    distances = (
        (wanted**2).sum(axis=1)[:, None] - 2 * wanted @ before.T + (before**2).sum(axis=1)[None]
    )
    return [known.texts[int(row)][0] for row in distances.argmin(axis=1)]


def _thumbnails(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(N, C, H, W) to (N, C·8·8): means of cells, of equal length without their mean."""
    count, channels, height, width = pixels.shape
    rows, columns = (np.linspace(0, n, SIDE + 1).astype(int)[:-1] for n in (height, width))
    sums = np.add.reduceat(np.add.reduceat(pixels.astype(np.float32), rows, 2), columns, 3)
    cells = sums.reshape(count, channels * SIDE * SIDE)
    cells -= cells.mean(axis=1, keepdims=True)
    length = np.maximum(np.linalg.norm(cells, axis=1, keepdims=True), 1e-6)
    found: NDArray[np.float32] = cells / length
    return found
