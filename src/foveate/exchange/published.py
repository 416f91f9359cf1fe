"""Published translators with their own vocabularies, as runs in which ids 0 to 3 are ours.

A published vocabulary has its special pieces anywhere, and some are two at once: Marian's decoder
starts with the padding. Here rows of the tables are put into our order, <unk>, <pad>, <s>, </s> and
then the others; a piece that is two has two rows. Everything else of foveate (searches, engine in
C, packed files, pages) needs to know nothing of it.
"""

import json
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tokenizers as rust
import torch

from foveate.data.published import Published, PublishedPieces, special_pieces
from foveate.data.sentencepiece import (
    MARK,
    UNKNOWN,
    JoinedPieces,
    SentencePiece,
    SentencePieceModel,
)
from foveate.data.tokenizer import BOS, PAD, SPECIALS, TAG, UNK, bounded, is_failure
from foveate.decode.beam import Beam
from foveate.decode.sample import Sample
from foveate.decode.search import Greedy, Search
from foveate.errors import UserError
from foveate.exchange import m2m100
from foveate.exchange.base import ExchangeError
from foveate.exchange.huggingface import FAST, read_json, read_settings
from foveate.exchange.huggingface_rules import Settings, Tensors
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.language_model import LanguageModel
from foveate.nn.spec import Tokens

Writer = EncoderDecoder | LanguageModel
LONGEST = 4096  # tokens of a text that are read at once, at most
RARE = 30.0  # below the lowest bias: a piece that no output has, with p < 1e-13 of the likeliest
BOTH_SIDES = ("m2m_100", "mbart")  # a language begins sources and outputs
LANGUAGE = re.compile(r"_*([a-z]{2,3}(?:_[A-Za-z]{2,4})?)_*")
PADDED = "pad_token_id", "decoder_start_token_id"
# Settings of `generate` that change nothing if they are 0 or absent; the last ones if they are 1.
OFF_AT_0 = """
    bad_words_ids begin_suppress_tokens constraints diversity_penalty do_sample epsilon_cutoff
    encoder_no_repeat_ngram_size eta_cutoff exponential_decay_length_penalty force_words_ids
    forced_decoder_ids min_length min_new_tokens no_repeat_ngram_size penalty_alpha
    renormalize_logits sequence_bias stop_strings suppress_tokens top_h
"""
OFF_AT_1 = """
    early_stopping encoder_repetition_penalty guidance_scale num_beam_groups num_beams
    repetition_penalty typical_p
"""
TABLES = {  # with a row for each piece
    "encoder.stem.embedding.weight", "decoder.stem.embedding.weight",
    "output.weight", "output.bias",
}  # fmt: skip


@dataclass(frozen=True)
class PublishedVocabulary:
    """The tokenizers of both sides, which know the published id of each of their pieces."""

    source: PublishedPieces
    target: PublishedPieces
    reach: int = 0  # tokens that a language model reads at once
    never: tuple[int, ...] = (PAD,)  # pieces that no output has


@contextmanager
def fitting_pieces(path: Path) -> Iterator[None]:
    """Raise `ExchangeError` if the block fails: a file of pieces that does not fit config.json."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        raise ExchangeError(f"{error.filename}: no such file; take the whole folder") from None
    except BaseException as error:
        if not is_failure(error):
            raise
        raise ExchangeError(
            f"{path} does not fit config.json ({error!r}): take both from the same folder"
        ) from None


def marian_vocabulary(folder: Path, settings: Settings) -> PublishedVocabulary:
    """Read source.spm, target.spm and vocab.json, as transformers saves a Marian model.

    With a target_vocab.json, vocab.json is the source's alone. Raises `ExchangeError` for files
    that do not fit each other or config.json.
    """
    own, numbers = folder / "target_vocab.json", folder / "vocab.json"
    apart = settings.get("share_encoder_decoder_embeddings") is False and own.is_file()
    size = settings["decoder_vocab_size" if apart else "vocab_size"]
    source = _side(folder / "source.spm", numbers, settings, settings["vocab_size"])
    target = _side(folder / "target.spm", own if apart else numbers, settings, size)
    return PublishedVocabulary(source, target)


def piece_vocabularies(
    reads: Path, writes: Path, settings: Settings, writes_unknown: bool
) -> PublishedVocabulary:
    """Read the SentencePiece models of both sides, whose pieces are the rows of a Marian model.

    ``writes_unknown`` is whether an output may have the unknown piece. Raises `ExchangeError` if
    there are not as many.
    """
    source = _side(reads, None, settings, settings["vocab_size"])
    target = _side(writes, None, settings, settings["decoder_vocab_size"])
    if settings["tie"] in ("all", "inputs") and source.published != target.published:
        raise ExchangeError(
            f"{reads} and {writes} number their special pieces differently, but the model has one "
            "table for both: take all files from the same folder"
        )
    return PublishedVocabulary(source, target, never=(PAD,) if writes_unknown else (UNK, PAD))


def _side(pieces: Path, numbers: Path | None, settings: Settings, rows: int) -> SentencePiece:
    """Return the tokenizer of a SentencePiece model, with the numbers of pieces in a vocab.json.

    Without ``numbers`` they have their own; the padding, which is the start too, is one piece more.
    """
    with fitting_pieces(numbers or pieces):
        model = SentencePieceModel.read(pieces)
        texts = [text for text, _, _ in model.pieces]
        ids = {text: i for i, text in enumerate([*texts, "<pad>"])}
        if numbers is None:
            settings = settings | dict.fromkeys(PADDED, len(texts))
        else:
            ids = json.loads(bounded(numbers))
        if sorted(ids.values()) != list(range(rows)):
            raise ValueError(f"{len(ids):,} pieces for {rows:,} rows of a table")
        unknown = texts[[kind for _, _, kind in model.pieces].index(UNKNOWN)]
        special = (settings[name] for name in (*PADDED, "eos_token_id"))
        return SentencePiece.of_model(model, ids, with_tags(ids, (ids[unknown], *special)))


class HubPieces:
    """The pieces of a tokenizer.json, by name and by id, the ids ``around`` each text, and that of
    the ``unknown`` piece, −1 if the model has none.

    Raises ``ValueError`` for ids that have no row in a table of ``rows``.
    """

    def __init__(self, tree: Settings, rows: int) -> None:
        self.tree, self.rows = tree, rows
        self.charsmap: str | None = tree.pop("charsmap", None)
        self.ids = {piece: int(i) for piece, i in pieces_of(tree)}
        self.names = {i: piece for piece, i in self.ids.items()}
        if not 0 <= min(self.names) <= max(self.names) < rows:
            raise ValueError(f"{max(self.names) + 1:,} pieces for {rows:,} ids")
        self.around: list[int] = rust.Tokenizer.from_str(json.dumps(tree)).encode("").ids
        unknown, name = (tree["model"].get(key) for key in ("unk_id", "unk_token"))
        self.unknown: int = self.ids.get(name, -1) if unknown is None else unknown

    def tokenizer(self, order: list[int], **own: object) -> Published:
        """Return the tokenizer of a text or side with its `Published.of_json` settings."""
        names = [self.names.get(i, f"<row_{i}>") for i in order]
        if self.charsmap is None:
            return Published.of_json(self.tree, names, order, **own)
        return JoinedPieces.of_json(self.tree, names, order, charsmap=self.charsmap, **own)


def hub_vocabulary(folder: Path, settings: Settings, generation: Settings) -> PublishedVocabulary:
    """Read tokenizer.json, as transformers saves it beside a translator of any family but M2M100.

    A language is a special piece of M2M100 and mBART, at the start of sources and of outputs, or a
    piece like ``<2fr>`` (T5, MADLAD). Raises `ExchangeError` if it does not fit config.json.
    """
    path = folder / "tokenizer.json"
    by_two = not path.is_file() and (folder / m2m100.PIECES).is_file()
    with fitting_pieces(folder / m2m100.NUMBERS if by_two else path):
        tree = m2m100.pieces_tree(folder) if by_two else read_json(path, FAST)
        pieces = HubPieces(tree, int(settings["vocab_size"]))
        end, forced = settings["eos_token_id"], generation.get("forced_bos_token_id")
        pad, start = settings["pad_token_id"], settings["decoder_start_token_id"]
        tags = {i: piece[2:-1] for piece, i in pieces.ids.items() if TAG.fullmatch(piece)}
        if settings["model_type"] in BOTH_SIDES:
            tags = _languages(pieces)
            first, openers = _default_source(folder, tags), list(tags)
        else:
            *begun, last = pieces.around
            if last != end or len(begun) > 1:
                raise ValueError(f"sources stand between {begun} and {last}")
            first, openers = next(iter(begun), None), [] if forced is None else [int(forced)]
        pieces.names |= {i: f"<2{name}>" for i, name in tags.items()}
        special = [_unknown(folder, pieces), pad, start, end]
        order = in_our_order(range(pieces.rows), special, {*tags, *openers})
        own = {i: n for n, i in reversed([*enumerate(order)])}
        last = len({*tags, *openers})
        source = pieces.tokenizer(order, first=None if first is None else own[first], last=last)
        opening = [] if forced is None else [own[int(forced)]]
        target = pieces.tokenizer(order, opening=opening, openers=len(openers), last=last)
    return PublishedVocabulary(source, target)


def text_vocabulary(folder: Path, settings: Settings) -> PublishedVocabulary:
    """Read tokenizer.json, as transformers saves it beside a decoder without an encoder.

    A text begins with what the tokenizer puts before it, if anything, and ends with eos_token_id.
    Raises `ExchangeError` if it does not fit config.json.
    """
    path = folder / "tokenizer.json"
    tree = read_json(path, FAST)
    with fitting_pieces(path):
        pieces = HubPieces(tree, int(settings["vocab_size"]))
        if len(begun := pieces.around) > 1:
            raise ValueError(f"a text stands between {begun}: expected one start, or none")
        end = settings["eos_token_id"]
        end = int(end[0] if isinstance(end, list) else end)
        special = [pieces.unknown, settings.get("pad_token_id", end), *(begun or [end]), end]
        special = [i if i in pieces.names else end for i in special]
        order = in_our_order(range(pieces.rows), special, ())
        text = pieces.tokenizer(order, startless=not begun)
    longest = settings.get("max_position_embeddings") or settings.get("n_positions") or LONGEST
    return PublishedVocabulary(text, text, min(int(longest), LONGEST), never=())


def sampling_of(generation: Settings, path: Path) -> Search.Config:
    """Return how `generate` of transformers draws texts with the settings in ``path``.

    Raises `ExchangeError` for a setting that our sampling does not have.
    """
    names = "temperature", "top_k", "top_p", "min_p", "repetition_penalty"
    known = (*names, "do_sample", "renormalize_logits")
    refuse_settings(generation, path, known, ("pad_token_id", "bos_token_id"))
    chosen = names if generation.get("do_sample") else names[-1:]
    drawn = {name: generation[name] for name in chosen if generation.get(name)}
    if drawn.get("repetition_penalty", 1.0) != 1.0:
        note = f"{path}: repetition_penalty counts output tokens, in transformers the prompt's too"
        warnings.warn(note, stacklevel=2)
    return Sample.Config.parse(drawn, (str(path),))


def pieces_of(tree: Settings) -> Iterator[tuple[str, int]]:
    """Yield each piece of a tokenizer.json with its id."""
    if tree["model"]["type"] not in ("BPE", "Unigram"):
        raise ValueError(f"a tokenizer of the kind {tree['model']['type']} is not supported")
    listed = tree["model"]["vocab"]
    if isinstance(listed, list):
        listed = {piece: i for i, (piece, _) in enumerate(listed)}
    yield from listed.items()
    yield from ((each["content"], each["id"]) for each in tree.get("added_tokens", ()))


def _unknown(folder: Path, pieces: HubPieces) -> int:
    """Return the id of the unknown piece; of vocabularies without one, that of the padding."""
    if (known := max(pieces.unknown, pieces.ids.get(SPECIALS[UNK], -1))) >= 0:
        return known
    names = read_settings(folder / "tokenizer_config.json")
    unknown = names.get("unk_token") or names["pad_token"]
    return pieces.ids[unknown["content"] if isinstance(unknown, dict) else unknown]


def _languages(pieces: HubPieces) -> dict[int, str]:
    """Return the languages that are special pieces: eng_Latn (NLLB), __en__ (M2M100), en_XX."""
    named = {pieces.ids[piece]: LANGUAGE.fullmatch(piece) for piece in special_pieces(pieces.tree)}
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
    return in_our_order(ids.values(), special, {i for n, i in ids.items() if MARK.fullmatch(n)})


def renumbered(model: Writer, vocabulary: PublishedVocabulary) -> Writer:
    """Return the same model with the rows of its tables in the order of our ids.

    The pieces that no output has, and those that are another piece as well, apart from `EOS`,
    become too improbable for any.
    """
    reads, order = vocabulary.source.published, vocabulary.target.published
    config = model.config.model_copy(update={"output_bias": True})
    orders = (reads, order) if isinstance(model, EncoderDecoder) else (order,)
    ours: Writer = config.build(*(Tokens(len(each)) for each in orders))
    theirs: Tensors = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            value = theirs.get(name, torch.zeros(max(order) + 1))  # it had no bias
            rows = reads if name.startswith("encoder") else order
            parameter.copy_(value[rows] if name in TABLES else value)
        bias = ours.output.bias
        twice: list[int] = [i for i in (UNK, PAD, BOS) if order.count(order[i]) > 1]
        bias[[*vocabulary.never, *twice]] = bias.min() - RARE
    return ours.eval()


def search_of(generation: Settings, path: Path) -> Search.Config:
    """Return the search that `generate` of transformers makes with the settings in ``path``.

    Raises `ExchangeError` for a setting that our searches do not have.
    """
    known = ("num_beams", "no_repeat_ngram_size", "min_length", "min_new_tokens")
    own = {name: value for name, value in generation.items() if value is not None}
    forced_end = "forced_eos_token_id" in own
    longest = int(own.get("max_new_tokens", own.get("max_length", 21) - 1)) - forced_end
    if own.get("model_type") in BOTH_SIDES or "forced_bos_token_id" in own:
        longest -= 1  # the opening, behind which ours counts
    least = own.get("min_new_tokens", own.get("min_length", 0) - 1)  # both count the opening
    rules: list[Settings] = [{"kind": "min_length", "length": least}] if least > 0 else []
    if size := own.get("no_repeat_ngram_size"):
        rules.append({"kind": "no_repeat", "size": size})
    alike = () if rules else ("renormalize_logits",)  # only rules leave p that does not sum to 1
    refuse_settings(own, path, (*known, *alike), ("pad_token_id",))
    limits: Settings = {"max_ratio": 0.0, "max_extra": longest, "whole_characters": False}
    width, penalty = own.get("num_beams", 1), own.get("length_penalty", 1.0)
    ends: Settings = {"forced_end": forced_end}
    ends["stop"] = "count" if own.get("early_stopping") else "bound"
    return greedy_or_beam(width, penalty, limits | {"rules": rules}, ends, path)


def refuse_settings(
    generation: Settings, path: Path, known: Collection[str], never: Collection[str]
) -> None:
    """Raise `ExchangeError` for a setting of `generate` in ``path`` that our searches do not have.

    They have those that are ``known``, and write none of the tokens whose names are in ``never``.
    """
    silent = [generation.get(name) for name in never]
    silent += [[i] for i in silent]
    for name in sorted({*OFF_AT_0.split(), *OFF_AT_1.split()} - {*known}):
        value = generation.get(name)
        off = name in OFF_AT_1.split() and value == 1
        if name in ("bad_words_ids", "suppress_tokens"):
            off = all(each in silent for each in value or ())
        if value and not off:
            raise ExchangeError(
                f"{path}: {name} = {value!r} is not supported, and outputs would differ from those "
                "of transformers: remove the key to open the model without it"
            )


def greedy_or_beam(
    width: int, penalty: float, limits: Settings, ends: Settings, path: Path
) -> Search.Config:
    """Return a search whose scores are log p / |y|^penalty; a beam of 1 is greedy.

    Raises ``ConfigError`` for a value in the file ``path`` that none has.
    """
    if width == 1:
        return Greedy.Config.parse(limits, (str(path),))
    own: Settings = {"beam_size": width, "length_penalty": penalty, "length_offset": 0.0}
    return Beam.Config.parse(own | ends | limits, (str(path),))
