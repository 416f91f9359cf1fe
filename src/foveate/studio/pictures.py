"""Pictures that come and go: data URIs to files, pixels to data URIs. A path is never read."""

from __future__ import annotations

import base64
import binascii
import io
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foveate.studio.errors import Refused

MOST = 12 * 1024 * 1024  # bytes of a picture
_URI = re.compile(r"data:image/(png|jpeg);base64,(.*)", re.DOTALL)
HINT = "send a data URI of a PNG or JPEG, or the number of a test picture"


@contextmanager
def opened(picture: str | None) -> Iterator[int | Path]:
    """The number of a test picture, or a file with what a data URI holds, gone afterwards.

    Raises `Refused` for anything else, paths of this machine among them.
    """
    said = (picture or "0").strip()
    if said.isascii() and said.isdecimal():
        yield int(said)
        return
    found = _URI.fullmatch(said)
    if found is None:
        raise Refused(422, "no_picture", "this is no picture", HINT)
    try:
        content = base64.b64decode(found[2], validate=True)
    except binascii.Error as error:
        raise Refused(422, "no_picture", f"the data URI is damaged: {error}", HINT) from None
    if len(content) > MOST:
        raise Refused(413, "too_long", f"a picture of {len(content):,} bytes", f"at most {MOST:,}")
    with tempfile.TemporaryDirectory(prefix="foveate-studio-") as folder:
        path = Path(folder) / f"picture.{found[1]}"
        path.write_bytes(content)
        yield path


def data_uri(pixels: NDArray[np.uint8], least: int = 0) -> str:
    """Pixels (C, H, W) as a PNG in a data URI, enlarged by whole numbers to ``least`` pixels."""
    from matplotlib.image import imsave

    times = max(1, -(-least // max(pixels.shape[1:])))
    shown = pixels.repeat(times, axis=1).repeat(times, axis=2).transpose(1, 2, 0)
    shown = shown.repeat(3, axis=2) if shown.shape[2] == 1 else shown
    file = io.BytesIO()
    imsave(file, np.ascontiguousarray(shown), format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
