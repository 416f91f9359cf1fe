"""Which target tokens may come next, for the sources of a batch: a small vocabulary, chosen first.

    V(x) = F ∪ ⋃_{s ∈ x} top_K t(· | s)      (Jean et al., 2015; L'Hostis, Grangier & Auli, 2016)

F are the tokens that the targets of the training data have most often, t the table of IBM Model 1
between the tokens of both sides. A step then computes |V(x)| logits and not V; p is over V(x), so
that scores are a little higher than over all tokens, and a rare word may be out of reach.

The step that computes the logits of V(x) alone is `foveate.models.encoder_decoder.DecoderSteps`.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from foveate.align.ibm import Model1, WordIds
from foveate.config import ConfigError
from foveate.data.corpus import sample
from foveate.data.tokenizer import EOS
from foveate.files import replace_file
from foveate.tasks.base import Batch
from foveate.tasks.text import Ids
from foveate.tasks.text_to_text import TextToText

FILE = "shortlist.npz"
ARRAYS = ("often", "likely")
LARGEST = 2**28  # bytes that are unpacked
PACKED = (zipfile.BadZipFile, zlib.error, NotImplementedError)
PAIRS = 200_000  # of the training data that Model 1 sees at most


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
    def load(cls, folder: Path) -> Shortlist:
        """That of a run. Raises ``ConfigError`` where it has none, or none that can be read."""
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


@dataclass(frozen=True)
class Reach:
    """What a shortlist holds of held-out pairs: shares of target tokens, mean size of V(x)."""

    covered: float
    size: float


def learn(task: TextToText[Batch], often: int, likely: int, seed: int = 0) -> Shortlist:
    """The shortlist of a task with text on both sides, from its training data."""
    corpus = task.corpus("train")
    some = corpus.take(sample(len(corpus), PAIRS, seed))
    sources, targets = (
        tokenizer.encode_ids(list(side))
        for tokenizer, side in (
            (task.source_tokenizer, some.sources),
            (task.target_tokenizer, some.targets),
        )
    )
    sizes = task.source_tokenizer.vocab_size, task.target_tokenizer.vocab_size
    counts = np.bincount(np.fromiter(chain(*targets), dtype=np.int64), minlength=sizes[1])
    others = np.argsort(-counts[EOS + 1 :], kind="stable")[:often] + EOS + 1
    first = np.concatenate((np.arange(EOS + 1), others))  # the special ones keep their ids
    return Shortlist(
        torch.from_numpy(first), torch.from_numpy(partners(sources, targets, sizes[0], likely))
    )


def partners(
    sources: Sequence[Ids], targets: Sequence[Ids], vocab_size: int, most: int
) -> NDArray[np.int64]:
    """The ``most`` target ids of the highest t(· | s) for each source id (V, K); 0 where fewer."""
    pairs = [
        ([str(i) for i in s], [str(i) for i in t]) for s, t in zip(sources, targets, strict=True)
    ]
    aligner = Model1(Model1.Config.parse({"kind": "ibm1", "lowercase": False}))
    aligner.train(pairs)
    numbers: WordIds = aligner.numbers
    of_source = np.array([-1, *map(int, numbers.source)])  # number -> id; NULL has none
    of_target = np.array([*map(int, numbers.target)])
    keys, p = aligner.lexicon.keys, aligner.lexicon.probability[:-1]
    source, target = of_source[keys // numbers.width], of_target[keys % numbers.width]
    by_p = np.lexsort((-p, source))
    source, target = source[by_p], target[by_p]
    place = np.arange(len(source)) - np.searchsorted(source, source)  # among those of its source
    most = min(most, vocab_size)
    likely = (source >= 0) & (place < most)
    table = np.zeros((vocab_size, most), dtype=np.int64)
    table[source[likely], place[likely]] = target[likely]
    return table


def reach(
    task: TextToText[Batch], shortlist: Shortlist, split: str = "valid", most: int = 1000
) -> Reach:
    """How much of held-out pairs a shortlist holds, one sentence at a time."""
    corpus = task.corpus(split)
    sources = task.source_tokenizer.encode_ids(list(corpus.sources[:most]))
    targets = task.target_tokenizer.encode_ids(list(corpus.targets[:most]))
    sizes, held, all_tokens = [], 0, 0
    for source, target in zip(sources, targets, strict=True):
        tokens = shortlist.tokens(torch.tensor([source], dtype=torch.long))
        sizes.append(len(tokens))
        held += int(torch.isin(torch.tensor(target, dtype=torch.long), tokens).sum())
        all_tokens += len(target)
    return Reach(held / max(all_tokens, 1), float(np.mean(sizes)))
