"""Tokenizers for other libraries: tokenizer.json and SentencePiece models."""

import io
import json
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from foveate.data.catalogue import DataError
from foveate.data.published import SPACE
from foveate.data.sentencepiece import CONTROL, NORMAL, UNKNOWN
from foveate.data.tokenizer import (
    BOS,
    BPE,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    Byte,
    Character,
    Symbol,
    Tokenizer,
    Unigram,
    byte_letters,
)
from foveate.exchange.base import ExchangeError, translator
from foveate.files import replace_file
from foveate.run import Run

Json = dict[str, Any]


def tokenizer_json(tokenizer: Tokenizer, start: bool = False) -> Json:
    """Return a tokenizer that puts ``</s>`` after each text, or if ``start`` before it.

    It has no added tokens, which would be cut out of texts: a ``</s>`` in a text is text, as in
    ours. Raises `ExchangeError` for a kind that the format cannot express.
    """
    if type(tokenizer) not in WAYS:
        fitting = ", ".join(str(kind.Config.kind) for kind in WAYS)
        raise ExchangeError(
            f"the tokenizer {tokenizer.config.kind} does not fit tokenizer.json: it splits and "
            f"joins words by its own rules; train with one of {fitting}"
        )
    if tokenizer.tags:
        raise ExchangeError(
            f"the marks {', '.join(tokenizer.tags)} choose a language only at the start of a "
            "text, which tokenizer.json cannot say; export to ctranslate2 or onnx"
        )
    end = {"SpecialToken": {"id": SPECIALS[EOS], "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    known = {SPECIALS[EOS]: {"id": SPECIALS[EOS], "ids": [EOS], "tokens": [SPECIALS[EOS]]}}
    post = {
        "type": "TemplateProcessing",
        "single": [end, text] if start else [text, end],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}, end],
        "special_tokens": known,
    }
    written = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None}
    written |= WAYS[type(tokenizer)](tokenizer)
    return written | {"added_tokens": [], "post_processor": post}


def write_example(run: Run, place: Path, pointer: dict[str, object], example: str) -> None:
    """Write a translator's tokenizers in the standard form, and ``example.py`` that uses them.

    Equal tokenizers become one tokenizer.json; they are tested on texts of the run's validation
    data, if available. If none is written, the pointer has the reason: a kind that the
    format cannot express, or a line that it splits differently.
    """
    from tokenizers import Tokenizer as Standard

    task, lines = translator(run), [" ".join(SPECIALS), "".join(SPECIALS)]
    sides = task.source_tokenizer, task.target_tokenizer
    with suppress(DataError, OSError):
        lines += run.pairs("valid")[0][:100]
    names = ["tokenizer.json"] * 2 if sides[0] is sides[1] else ["source.json", "target.json"]
    try:
        texts = [json.dumps(tokenizer_json(side), ensure_ascii=False) for side in sides]
    except ExchangeError as error:
        pointer["tokenizer"] = str(error)
        return
    cut = [each.ids[:-1] for each in Standard.from_str(texts[0]).encode_batch(lines)]
    for line, ours, theirs in zip(lines, sides[0].encode_ids(lines), cut, strict=True):
        if ours != theirs:
            pointer["tokenizer"] = f"tokenizer.json cuts otherwise: {line!r}"
            return
    for name, text in zip(names, texts, strict=True):
        replace_file(place / name, text)
    replace_file(place / "example.py", example.format(source=names[0], target=names[1]))


def _subword(tokenizer: Tokenizer) -> Json:
    return json.loads(tokenizer.text())["vocabulary"]


def _byte(tokenizer: Tokenizer) -> Json:
    vocabulary = {piece: i for i, piece in enumerate(SPECIALS)}
    vocabulary |= {letter: 4 + byte for byte, letter in enumerate(byte_letters())}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    level |= {"use_regex": False}
    return {
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }


def _listed(
    pattern: str, decoder: Json | None, hidden: str | None = None
) -> Callable[[Tokenizer], Json]:
    """Return a writer for units that match a regular expression, each with an id.

    Occurrences of special pieces' names that ``hidden`` matches become unknown tokens.
    """

    def write(tokenizer: Tokenizer) -> Json:
        own = tokenizer.pieces[len(SPECIALS) :]
        names = "|".join(name for name in SPECIALS[1:] if name not in own)
        unknown = None
        if hidden is not None and names:
            regex = {"Regex": hidden.format(f"(?:{names})")}
            unknown = {"type": "Replace", "pattern": regex, "content": SPECIALS[UNK]}
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed"}
        vocabulary = {piece: i for i, piece in enumerate(tokenizer.pieces)}  # the last one wins
        return {
            "normalizer": unknown,
            "pre_tokenizer": split | {"invert": True},
            "decoder": decoder,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": SPECIALS[UNK]},
        }

    return write


def _character(tokenizer: Tokenizer) -> Json:
    symbols = getattr(tokenizer.config, "symbols", None)
    if symbols is None:
        return _listed(r"[\s\S]", {"type": "Fuse"})(tokenizer)
    return _listed(rf"(?:{symbols})|[\s\S]", {"type": "Fuse"}, "{}")(tokenizer)


WAYS: dict[type[Tokenizer], Callable[[Tokenizer], Json]] = {
    BPE: _subword,
    Unigram: _subword,
    Byte: _byte,
    Character: _character,
    Symbol: _listed(r"\S+", None, r"(?<!\S){}(?!\S)"),
}


# Convert our subword tokenizers to SentencePiece models.
#
# Ours spell a text in 256 letters, one for each byte, and join letters. A SentencePiece model has a
# table that rewrites characters before the text is split, and one that rewrites the pieces' text:
# the first spells each character in its bytes' letters, the second reads them back. In between is
# the same list of pieces with the same ranks.
#
# One thing cannot be expressed: boundaries that no piece crosses. This shows where an apostrophe
# follows anything but a letter (1950's), so that a conversion must be tested on lines
# (`differing`).

LAST = 0x20000  # characters from here on, rare ideographs, are only spelled in bytes


def named(tokenizer: Tokenizer) -> list[str]:
    """Return a tokenizer's pieces by their SentencePiece names: a space is another letter."""
    space = byte_letters()[ord(" ")]
    own = tokenizer.pieces
    return [*own[: len(SPECIALS)], *(p.replace(space, SPACE) for p in own[len(SPECIALS) :])]


def sentencepiece_model(tokenizer: Tokenizer) -> bytes:
    """Return the file of a model. Raises `ExchangeError` for a tokenizer it cannot express."""
    refuse(tokenizer)
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    model.ParseFromString(_with_tables(bool(getattr(tokenizer.config, "lowercase", False))))
    del model.pieces[:]
    for i, (piece, score) in enumerate(zip(named(tokenizer), _scores(tokenizer), strict=True)):
        kind = UNKNOWN if i == UNK else CONTROL if i < len(SPECIALS) else NORMAL
        model.pieces.add(piece=piece, score=score, type=kind)
    trainer = model.trainer_spec
    trainer.model_type = trainer.BPE if isinstance(tokenizer, BPE) else trainer.UNIGRAM
    trainer.unk_id, trainer.pad_id, trainer.bos_id, trainer.eos_id = UNK, PAD, BOS, EOS
    trainer.vocab_size = tokenizer.vocab_size
    for spec, marks in ((model.normalizer_spec, True), (model.denormalizer_spec, False)):
        spec.add_dummy_prefix = spec.escape_whitespaces = marks
        spec.remove_extra_whitespaces = False
        spec.ClearField("normalization_rule_tsv")  # the name of a passing file
    return model.SerializeToString()


def refuse(tokenizer: Tokenizer) -> None:
    """Raise `ExchangeError` for a tokenizer that SentencePiece cannot express."""
    if not isinstance(tokenizer, BPE | Unigram):
        raise ExchangeError(
            f"the tokenizer {tokenizer.config.kind} is not a SentencePiece model: train with bpe "
            "or unigram"
        )
    if tokenizer.tags:
        raise ExchangeError(
            f"the marks {', '.join(tokenizer.tags)} at the start of a text have no place in a "
            "SentencePiece model: train one run per language"
        )


def differing(tokenizer: Tokenizer, model: bytes, lines: Sequence[str]) -> list[int]:
    """Return the indices of lines that the model splits differently from ours."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    both = zip(tokenizer.encode_ids(lines), processor.encode(list(lines)), strict=True)
    return [number for number, (ours, theirs) in enumerate(both) if ours != theirs]


def _scores(tokenizer: Tokenizer) -> Iterable[float]:
    """Return scores: BPE joins the pair with the highest first; unigram takes the highest sum."""
    if isinstance(tokenizer, BPE):
        return (-float(i) for i in range(tokenizer.vocab_size))
    return [score for _, score in json.loads(tokenizer.text())["vocabulary"]["model"]["vocab"]]


@cache
def _with_tables(lowercase: bool) -> bytes:
    """Return a model with the two tables, which only SentencePiece's own training can make."""
    import sentencepiece

    written = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        spelled, read = Path(folder) / "spelled.tsv", Path(folder) / "read.tsv"
        rows = list(_spellings(lowercase))
        spelled.write_text("".join(_row(c, letters) for c, letters in rows), "utf-8", newline="\n")
        back = (_row(letters, c) for c, letters in _spellings(False))
        read.write_text("".join(back), "utf-8", newline="\n")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["a b"]),
            model_writer=written,
            model_type="char",
            vocab_size=8,
            hard_vocab_limit=False,
            normalization_rule_tsv=str(spelled),
            denormalization_rule_tsv=str(read),
            minloglevel=2,
        )
    return written.getvalue()


def _spellings(lowercase: bool) -> Iterator[tuple[str, str]]:
    """Yield each character and the letters of its bytes, if they differ."""
    letters = byte_letters()
    for code in range(1, LAST):
        character = chr(code)
        if character == " " or unicodedata.category(character) in ("Cn", "Cs", "Co"):
            continue
        text = character.lower() if lowercase else character
        spelled = "".join(letters[byte] for byte in text.encode())
        if spelled != character:
            yield character, spelled


def _row(left: str, right: str) -> str:
    return "\t".join(" ".join(f"{ord(c):X}" for c in text) for text in (left, right)) + "\n"
