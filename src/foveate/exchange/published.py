"""Published translators with their own vocabularies, as runs in which ids 0 to 3 are ours.

A published vocabulary has its special pieces anywhere, and some are two at once: Marian's decoder
starts with the padding. Here rows of the tables are put into our order, <unk>, <pad>, <s>, </s> and
then the others; a piece that is two has two rows. Everything else of foveate (searches, engine in
C, packed files, pages) needs to know nothing of it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from foveate.data.sentencepiece import TAG, UNKNOWN, SentencePiece, SentencePieceModel
from foveate.data.tokenizer import BOS, PAD, Tokenizer, bounded
from foveate.decode.beam import Beam, Greedy
from foveate.decode.search import Search
from foveate.exchange.base import ExchangeError
from foveate.exchange.huggingface_rules import Settings
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.nn.spec import Tokens

RARE = 30.0  # below the lowest bias: a piece that no output has, with p < 1e-13 of the likeliest
TABLES = {  # with a row for each piece
    "encoder.stem.embedding.weight", "decoder.stem.embedding.weight",
    "output.weight", "output.bias",
}  # fmt: skip


@dataclass(frozen=True)
class PublishedVocabulary:
    """The tokenizers of both sides, and the published id of each of ours."""

    source: Tokenizer
    target: Tokenizer
    order: Sequence[int]


def marian_vocabulary(folder: Path, settings: Settings) -> PublishedVocabulary:
    """Read source.spm, target.spm and vocab.json, as transformers saves a Marian model.

    Raises `ExchangeError` for files that do not fit each other or config.json.
    """
    path = folder / "vocab.json"
    if (folder / "target_vocab.json").is_file():
        raise ExchangeError(
            f"{folder / 'target_vocab.json'}: a vocabulary for each side is not supported yet"
        )
    try:
        ids = json.loads(bounded(path))
        size = 1 + max(ids.values())
        if sorted(ids.values()) != list(range(size)) or size != settings["vocab_size"]:
            raise ValueError(f"{len(ids):,} pieces for {settings['vocab_size']:,} ids")
        pad, end = settings["pad_token_id"], settings["eos_token_id"]
        start = settings["decoder_start_token_id"]
        order = in_our_order(ids, ids["<unk>"], pad, start, end)
    except FileNotFoundError:
        raise ExchangeError(f"{path}: no such file; take the whole folder") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ExchangeError(
            f"{path} does not fit config.json ({error!r}): take both from the same folder"
        ) from None
    for name in ("source.spm", "target.spm"):
        if not (folder / name).is_file():
            raise ExchangeError(f"{folder / name}: no such file; take the whole folder")
    source, target = (
        SentencePiece.of_model(SentencePieceModel.read(folder / name), ids, order)
        for name in ("source.spm", "target.spm")
    )
    return PublishedVocabulary(source, target, order)


def piece_vocabulary(path: Path, settings: Settings) -> PublishedVocabulary:
    """Read a SentencePiece model whose pieces are numbered as the rows of a Marian model.

    Raises `ExchangeError` if there are not as many as config.json says.
    """
    if not path.is_file():
        raise ExchangeError(f"{path}: no such file; take the whole folder")
    model = SentencePieceModel.read(path)
    names = [text for text, _, _ in model.pieces]
    unknown = [kind for _, _, kind in model.pieces].index(UNKNOWN)
    ids, pad = {name: i for i, name in enumerate(names)}, len(names)
    if settings["vocab_size"] != pad + 1 or len(ids) != pad:
        raise ExchangeError(
            f"{path} has {pad:,} pieces, the model {settings['vocab_size'] - 1:,}: take both from "
            "the same folder"
        )
    order = in_our_order(ids | {"<pad>": pad}, unknown, pad, pad, settings["eos_token_id"])
    tokenizer = SentencePiece.of_model(model, ids | {"<pad>": pad}, order)
    return PublishedVocabulary(tokenizer, tokenizer, order)


def in_our_order(ids: Mapping[str, int], unk: int, pad: int, start: int, end: int) -> list[int]:
    """Return the published ids in the order of ours: special pieces, pieces, tags of languages."""
    special = [int(i) for i in (unk, pad, start, end)]
    if not all(0 <= i < len(ids) for i in special):
        raise ValueError(f"ids of special pieces {special} of {len(ids):,}")
    rest = [(bool(TAG.fullmatch(piece)), i) for piece, i in ids.items() if i not in special]
    return special + [i for _, i in sorted(rest)]


def renumbered(
    model: EncoderDecoder, order: Sequence[int], never: Sequence[int] = (PAD,)
) -> EncoderDecoder:
    """Return the same model with the rows of its tables in another order.

    The pieces ``never`` and a start that is another piece as well become too improbable for any
    output.
    """
    config = model.config.model_copy(update={"output_bias": True})
    ours: EncoderDecoder = config.build(Tokens(len(order)), Tokens(len(order)))
    theirs: dict[str, Any] = dict(model.named_parameters())
    rows = torch.tensor(order)
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            value = theirs.get(name, torch.zeros(max(order) + 1))  # it had no bias
            parameter.copy_(value[rows] if name in TABLES else value)
        bias = ours.output.bias
        twice = [BOS] if order.count(order[BOS]) > 1 else []
        bias[[*never, *twice]] = bias.min() - RARE
    return ours.eval()


def search_of(settings: Settings, generation: Settings) -> Search.Config:
    """Return the search that `generate` of transformers makes with a folder's settings."""
    own = settings | generation
    longest = int(own.get("max_length") or 20) - 1 - (own.get("forced_eos_token_id") is not None)
    limits: dict[str, Any] = {"max_ratio": 0.0, "max_extra": longest}
    width = int(own.get("num_beams") or 1)
    if width == 1:
        return Greedy.Config(**limits)
    penalty = own.get("length_penalty")
    return Beam.Config(
        beam_size=width,
        length_penalty=1.0 if penalty is None else penalty,
        length_offset=0.0,
        stop="count" if own.get("early_stopping") else "bound",
        **limits,
    )
