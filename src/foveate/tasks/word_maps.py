"""Cross-attention between the words of given pairs: what alignments are read from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from foveate.align.aer import Rows
from foveate.data.tokenizer import Encoded, Tokenizer
from foveate.data.words import split_words
from foveate.inspect.records import capture
from foveate.inspect.words import group_pieces, to_words
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.tasks.base import Cut, WordMaps
from foveate.tasks.text import Ids, collate

AT_ONCE = 32  # pairs in one forced pass


def word_maps(
    model: EncoderDecoder,
    tokenizers: tuple[Tokenizer, Tokenizer],
    pairs: Sequence[tuple[str, str | Ids]],
    rows: Rows = "produced",
    cut: Cut = split_words,
) -> Iterator[WordMaps]:
    """For each pair the maps (H, T, S + 1) by layer: T target words, S source words and the end.

    One forced pass over (source, target). Step t reads y_{t−1} and produces y_t: a word's row is
    the mean of its pieces' steps, or of the steps that follow them (``rows = "read"``).
    ``cut`` says where the words of a text stand; a target may be given as ids.
    """
    for start in range(0, len(pairs), AT_ONCE):
        chosen = pairs[start : start + AT_ONCE]
        sources = tokenizers[0].encode_batch([source for source, _ in chosen])
        targets = [_encoded(tokenizers[1], target) for _, target in chosen]
        batch = collate([s.ids for s in sources], [encoded.ids for _, encoded in targets])
        batch = batch.to(model.output.weight.device)
        with (
            torch.inference_mode(),
            capture(model, lambda name: name.endswith("cross_attention")) as weights,
        ):
            model.decode(batch.read, model.encode(batch.source, batch.keys))
        maps = {name: w.cpu().numpy() for name, w in weights.items()}
        for row, ((source, _), (target, encoded)) in enumerate(zip(chosen, targets, strict=True)):
            end = len(sources[row].ids)
            columns = [*pieces_of(sources[row], cut(source)), [end]]
            later = rows == "read"
            steps = [[t + later for t in word] for word in pieces_of(encoded, cut(target))]
            yield {name: to_words(w[row], steps, columns) for name, w in maps.items()}


def pieces_of(text: Encoded, words: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The pieces of each word of a text; a first piece without characters goes to the first."""
    if not words:
        return []
    return group_pieces([(a, b) if b else (0, 1) for a, b in text.offsets], words).pieces


def _encoded(tokenizer: Tokenizer, target: str | Ids) -> tuple[str, Encoded]:
    if isinstance(target, str):
        return target, tokenizer.encode(target)
    return tokenizer.decode(target), Encoded(list(target), tokenizer.spans(target))
