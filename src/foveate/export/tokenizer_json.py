"""Our tokenizers as the file tokenizer.json that Hugging Face's fast tokenizers read.

Lives here: what of our kinds it can say. Does not live here: the kinds (`foveate.data.tokenizer`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from foveate.data.subword import byte_letters
from foveate.data.tokenizer import (
    BPE,
    EOS,
    SPECIALS,
    UNK,
    Byte,
    Character,
    Symbol,
    Tokenizer,
    Unigram,
)
from foveate.export.huggingface_rules import ExchangeError

Json = dict[str, Any]


def tokenizer_json(tokenizer: Tokenizer, start: bool = False) -> Json:
    """A tokenizer that puts ``</s>`` after each text, or where ``start`` before it.

    Raises `ExchangeError` for a kind that the format cannot say.
    """
    if type(tokenizer) not in WAYS:
        fitting = ", ".join(str(kind.Config.kind) for kind in WAYS)
        raise ExchangeError(
            f"the tokenizer {tokenizer.config.kind} has no form in tokenizer.json: it cuts words "
            f"and sets blanks by rules of its own; train with one of {fitting}, or export to "
            "safetensors"
        )
    if tokenizer.tags:
        raise ExchangeError(
            f"the marks {', '.join(tokenizer.tags)} choose a language at the start of a text "
            "alone, which tokenizer.json cannot say; export to ctranslate2 or onnx"
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
    return written | {"added_tokens": [_added(i) for i in range(4)], "post_processor": post}


def _added(i: int) -> Json:
    marks = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": i, "content": SPECIALS[i], "special": True, **marks}


def _subword(tokenizer: Tokenizer) -> Json:
    found: Json = json.loads(tokenizer.text())["vocabulary"]
    return found


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
    """Units that a regular expression finds, each an id; what ``hidden`` finds is unknown."""
    unknown = None
    if hidden is not None:
        unknown = {"type": "Replace", "pattern": {"Regex": hidden}, "content": SPECIALS[UNK]}

    def write(tokenizer: Tokenizer) -> Json:
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed"}
        vocabulary = {piece: i for i, piece in enumerate(tokenizer.pieces)}
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
    return _listed(rf"(?:{symbols})|[\s\S]", {"type": "Fuse"}, _NAMES)(tokenizer)


_NAMES = "<pad>|</?s>"  # special pieces, which no text reaches


WAYS: dict[type[Tokenizer], Callable[[Tokenizer], Json]] = {
    BPE: _subword,
    Unigram: _subword,
    Byte: _byte,
    Character: _character,
    Symbol: _listed(r"\S+", None, rf"(?<!\S)(?:{_NAMES})(?!\S)"),
}
