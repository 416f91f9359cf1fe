"""Published translators with their own vocabularies, as runs in which ids 0 to 3 are ours.

A published vocabulary has its special pieces anywhere, and some are two at once: Marian's decoder
starts with the padding. Here rows of the tables are put into our order, <unk>, <pad>, <s>, </s> and
then the others; a piece that is two has two rows. Everything else of foveate (searches, engine in
C, packed files, pages) needs to know nothing of it.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers as rust
import torch

from foveate.data.published import Published
from foveate.data.sentencepiece import TAG, UNKNOWN, SentencePiece, SentencePieceModel
from foveate.data.tokenizer import BOS, PAD, UNK, Tokenizer, bounded
from foveate.decode.beam import Beam, Greedy
from foveate.decode.search import Search
from foveate.exchange.base import ExchangeError
from foveate.exchange.huggingface import FAST, read_json, read_settings
from foveate.exchange.huggingface_rules import Settings, Tensors
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.nn.spec import Tokens

RARE = 30.0  # below the lowest bias: a piece that no output has, with p < 1e-13 of the likeliest
BOTH_SIDES = ("m2m_100", "mbart")  # a language begins sources and outputs
LANGUAGE = re.compile(r"_*([a-z]{2,3}(?:_[A-Za-z]{2,4})?)_*")
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
        order = with_tags(ids, (ids["<unk>"], pad, settings["decoder_start_token_id"], end))
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
    ids |= {"<pad>": pad}
    order = with_tags(ids, (unknown, pad, pad, settings["eos_token_id"]))
    tokenizer = SentencePiece.of_model(model, ids, order)
    return PublishedVocabulary(tokenizer, tokenizer, order)


def hub_vocabulary(folder: Path, settings: Settings, generation: Settings) -> PublishedVocabulary:
    """Read tokenizer.json, as transformers saves it beside a model of any family.

    A language is a special piece of M2M100 and mBART, at the start of sources and of outputs, or a
    piece like ``<2fr>`` (T5, MADLAD). Raises `ExchangeError` if it does not fit config.json.
    """
    path = folder / "tokenizer.json"
    tree = read_json(path, FAST)
    try:
        ids = {piece: int(i) for piece, i in pieces_of(tree)}
        rows = int(settings["vocab_size"])
        if not 0 <= min(ids.values()) <= max(ids.values()) < rows:
            raise ValueError(f"{max(ids.values()) + 1:,} pieces for {rows:,} ids")
        end, forced = settings["eos_token_id"], generation.get("forced_bos_token_id")
        pad, start = settings["pad_token_id"], settings["decoder_start_token_id"]
        special = [_unknown(folder, tree, ids), pad, start, end]
        tags = {i: p[2:-1] for p, i in ids.items() if re.fullmatch(r"<2[^<>\s:]+>", p)}
        if settings["model_type"] in BOTH_SIDES:
            tags = _languages(tree, ids)
            first, openers = _default_source(folder, tags), list(tags)
        else:
            *begun, last = rust.Tokenizer.from_str(json.dumps(tree)).encode("").ids
            if last != end or len(begun) > 1:
                raise ValueError(f"sources stand between {begun} and {last}")
            first, openers = next(iter(begun), None), [] if forced is None else [int(forced)]
        names = {i: piece for piece, i in ids.items()} | {i: f"<2{n}>" for i, n in tags.items()}
        order = in_our_order(range(rows), special, {*tags, *openers})
        own = {i: n for n, i in reversed([*enumerate(order)])}
        plain = Published.of_json(tree, [names.get(i, f"<row_{i}>") for i in order], order)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ExchangeError(
            f"{path} does not fit config.json ({error!r}): take both from the same folder"
        ) from None
    opening = [] if forced is None else [own[int(forced)]]
    sides = plain.sides(None if first is None else own[first], opening, len(openers))
    return PublishedVocabulary(*sides, order)


def pieces_of(tree: Settings) -> Iterator[tuple[str, int]]:
    """Yield each piece of a tokenizer.json with its id."""
    if tree["model"]["type"] not in ("BPE", "Unigram"):
        raise ValueError(f"a tokenizer of the kind {tree['model']['type']} is not supported")
    listed = tree["model"]["vocab"]
    yield from (
        listed.items()
        if isinstance(listed, dict)
        else ((piece, i) for i, (piece, _) in enumerate(listed))
    )
    yield from ((each["content"], each["id"]) for each in tree.get("added_tokens", ()))


def _unknown(folder: Path, tree: Settings, ids: Mapping[str, int]) -> int:
    """Return the id of the unknown piece; of vocabularies without one, that of the padding."""
    model = tree["model"]
    if model.get("unk_id") is not None:
        return int(model["unk_id"])
    names = read_settings(folder / "tokenizer_config.json")
    unknown = model.get("unk_token") or names.get("unk_token") or names["pad_token"]
    return ids[unknown["content"] if isinstance(unknown, dict) else unknown]


def _languages(tree: Settings, ids: Mapping[str, int]) -> dict[int, str]:
    """Return the languages that are special pieces: eng_Latn (NLLB), __en__ (M2M100), en_XX."""
    special = {each["content"] for each in tree.get("added_tokens", ()) if each["special"]}
    named = {ids[piece]: LANGUAGE.fullmatch(piece) for piece in special}
    return {i: match[1] for i, match in sorted(named.items()) if match is not None}


def _default_source(folder: Path, tags: Mapping[int, str]) -> int | None:
    """Return the id of the language of sources that name none: the folder's, or English."""
    path = folder / "tokenizer_config.json"
    own = read_settings(path) if path.is_file() else {}
    if own.get("legacy_behaviour"):
        raise ValueError("legacy_behaviour, a language after each source, is not supported")
    names = [str(own.get("src_lang") or "").strip("_"), "eng_Latn", "en", "en_XX"]
    ids = {name: i for i, name in tags.items()}
    return next((ids[name] for name in names if name in ids), next(iter(tags)))


def in_our_order(ids: Iterable[int], special: Sequence[int], last: Collection[int]) -> list[int]:
    """Return the published ids in the order of ours: special pieces, the others, the last ones.

    Special are those of <unk>, <pad>, <s> and </s>. Raises ``ValueError`` if one is none.
    """
    special, listed = list(map(int, special)), sorted(ids)
    if not set(special) <= set(listed):
        raise ValueError(f"ids of special pieces {special} of {len(listed):,}")
    apart = {*special, *last}
    return [*special, *(i for i in listed if i not in apart), *(i for i in listed if i in last)]


def with_tags(ids: Mapping[str, int], special: Sequence[int]) -> list[int]:
    """Return `in_our_order` of pieces among which ``>>fra<<`` is a language."""
    return in_our_order(ids.values(), special, {i for n, i in ids.items() if TAG.fullmatch(n)})


def renumbered(
    model: EncoderDecoder, order: Sequence[int], never: Sequence[int] = (PAD,)
) -> EncoderDecoder:
    """Return the same model with the rows of its tables in another order.

    The pieces ``never``, and an unknown piece or a start that is another piece as well, become too
    improbable for any output.
    """
    config = model.config.model_copy(update={"output_bias": True})
    ours: EncoderDecoder = config.build(Tokens(len(order)), Tokens(len(order)))
    theirs: Tensors = dict(model.named_parameters())
    rows = torch.tensor(order)
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            value = theirs.get(name, torch.zeros(max(order) + 1))  # it had no bias
            parameter.copy_(value[rows] if name in TABLES else value)
        bias = ours.output.bias
        twice = [i for i in (UNK, BOS) if order.count(order[i]) > 1]
        bias[[*never, *twice]] = bias.min() - RARE
    return ours.eval()


def search_of(settings: Settings, generation: Settings) -> Search.Config:
    """Return the search that `generate` of transformers makes with a folder's settings."""
    own = settings | generation
    longest = int(own.get("max_length") or 20) - 1 - (own.get("forced_eos_token_id") is not None)
    if own.get("model_type") in BOTH_SIDES or own.get("forced_bos_token_id") is not None:
        longest -= 1  # the opening, behind which ours counts
    limits: Settings = {"max_ratio": 0.0, "max_extra": longest, "whole_characters": False}
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
