"""Maps between the words of pairs, from the attention of a translator.

word_maps(task, model, [(source, target)]) -> maps of each pair, from which `Head.links` reads links
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from foveate.data.words import behind_tag, between_words, split_words
from foveate.engine.links import Rows
from foveate.look.hooks import capture
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.tasks.text import Ids, collate
from foveate.tasks.translation import Translation

AT_ONCE = 32  # pairs in one forced pass of `word_maps`
WordMaps = dict[str, NDArray[np.float32]]  # by layer (H, T, S + 1)
Cut = Callable[[str], list[tuple[int, int]]]  # the spans of the words of a text


def word_maps(
    task: Translation,
    model: EncoderDecoder,
    pairs: Sequence[tuple[str, str | Ids]],
    rows: Rows = "produced",
    cut: Cut = split_words,
) -> Iterator[WordMaps]:
    """Yield for each pair the maps (H, T, S + 1) by layer: T target words, S source words, the end.

    One forced pass over (source, target). Step t reads y_{t−1} and produces y_t: a word's row
    is the mean of its pieces' steps, or of the steps that follow them (``rows = "read"``).
    ``cut`` says where the words of a text stand; the tag of a language is none. A target may be
    given as ids.
    """
    later = rows == "read"
    for start in range(0, len(pairs), AT_ONCE):
        chosen = pairs[start : start + AT_ONCE]
        lines = task.sides.sources([line for line, _ in chosen])
        chosen = [(source, target) for source, (_, target) in zip(lines, chosen, strict=True)]
        reads, writes = task.tokenizers
        sources = [reads.encode(source) for source, _ in chosen]
        targets = [writes.written(target, source) for source, target in chosen]
        batch = collate([s.ids for s in sources], [encoded.ids for _, encoded in targets])
        batch = batch.to(model.output.weight.device)
        with (
            torch.inference_mode(),
            capture(model, lambda name: name.endswith("cross_attention")) as weights,
        ):
            model.decode(batch.inputs, model.encode(batch.source, batch.source_mask))
        maps = {name: w.cpu().numpy() for name, w in weights.items()}
        for row, (read, (target, encoded)) in enumerate(zip(sources, targets, strict=True)):
            source = chosen[row][0]
            reading = behind_tag(source, task.source_tokenizer.bare(source), read.offsets, cut)
            own = {name: w[row] for name, w in maps.items()}
            yield between_words(own, reading, (encoded.offsets, cut(target)), later)
