"""The target tokens that may come next for a batch of sources: a small vocabulary, chosen first.

    V(x) = F ∪ ⋃_{s ∈ x} top_K t(· | s)      (Jean et al., 2015; L'Hostis, Grangier & Auli, 2016)

F are the tokens that the targets of the training data have most often, t the table of IBM Model 1
between the tokens of both sides. A step then computes |V(x)| logits and not V; p is over V(x), so
that scores are a little higher than over all tokens, and a rare word may be out of reach.

The step that computes the logits of V(x) alone is `foveate.models.encoder_decoder.DecoderSteps`.
"""

import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from foveate.config import ConfigError
from foveate.files import replace_file

FILE = "shortlist.npz"
ARRAYS = ("often", "likely")
LARGEST = 2**28  # bytes that are unpacked
PACKED = (zipfile.BadZipFile, zlib.error, NotImplementedError)


@dataclass(frozen=True)
class Shortlist:
    """F (ids of F tokens, the special ones among them) and, for each source token, K partners."""

    often: Int[Tensor, "F"]
    likely: Int[Tensor, "V K"]

    def tokens(self, source: Int[Tensor, "B S"]) -> Int[Tensor, "W"]:
        """V(x) of all sources of a batch together, in the order of ids."""
        chosen = torch.cat((self.often, self.likely[source.cpu()].flatten())).unique()
        return chosen.to(source.device)

    @property
    def arrays(self) -> list[NDArray[np.int32]]:
        """Both, for the engine in C."""
        return [ids.numpy().astype(np.int32) for ids in (self.often, self.likely)]

    def save(self, folder: Path) -> None:
        """Write it into a run, for `load`."""
        content = io.BytesIO()
        np.savez_compressed(content, often=self.often.numpy(), likely=self.likely.numpy())
        replace_file(folder / FILE, content.getvalue())

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load that of a run. Raises ``ConfigError`` if there is none, or if it is damaged."""
        path = folder / FILE
        if not path.is_file():
            raise ConfigError(f"{folder} has no shortlist; make one: foveate shortlist {folder}")
        try:
            with zipfile.ZipFile(path) as archive:  # how much it says it holds is all that is read
                if (size := sum(file.file_size for file in archive.infolist())) > LARGEST:
                    raise ValueError(f"it would have {size:,} bytes, unpacked")
            with np.load(path, allow_pickle=False) as arrays:
                return cls(*(_ids(arrays[name], n) for n, name in enumerate(ARRAYS, start=1)))
        except (OSError, ValueError, LookupError, EOFError, RuntimeError, *PACKED) as error:
            raise ConfigError(f"{path} is damaged ({error}); make it again") from None


def _ids(array: NDArray[np.generic] | bytes, dimensions: int) -> Tensor:
    if isinstance(array, bytes):  # NumPy returns anything but an array as it is
        raise ValueError("no array")
    if array.ndim != dimensions or array.dtype != np.int64 or array.min(initial=0) < 0:
        raise ValueError(f"no ids: {array.dtype}, {array.shape}")
    return torch.from_numpy(array)
