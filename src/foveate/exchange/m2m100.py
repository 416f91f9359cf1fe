"""The pieces of M2M100 (Fan et al., 2021), which transformers saves without a tokenizer.json."""

import json
from base64 import b64encode
from pathlib import Path

import tokenizers as rust
from tokenizers import models, pre_tokenizers

from foveate.data.published import SPACE
from foveate.data.sentencepiece import JOINED, NORMAL, SentencePieceModel
from foveate.exchange.huggingface import read_json, read_settings
from foveate.exchange.huggingface_rules import Settings

NUMBERS, PIECES = "vocab.json", "sentencepiece.bpe.model"
LANGUAGES = {  # by language_codes of tokenizer_config.json, in the order of their ids
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga "
    "gd gl gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml "
    "mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn "
    "tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}


def pieces_tree(folder: Path) -> Settings:
    """Return as a tokenizer.json what vocab.json and sentencepiece.bpe.model say.

    vocab.json numbers the pieces, and the languages follow. SentencePiece joins the neighbours
    whose piece has the highest score; its normalizer is under ``charsmap``. Raises `UserError` for
    files that cannot be read, and ``LookupError`` if they do not fit each other.
    """
    ids: dict[str, int] = read_json(folder / NUMBERS, "take the whole folder")
    own = read_settings(folder / "tokenizer_config.json")
    model = SentencePieceModel.read(folder / PIECES, JOINED)
    scores = {piece: score for piece, score, kind in model.pieces if kind == NORMAL}
    codes = LANGUAGES[own.get("language_codes") or "m2m100"].split()
    languages = {f"__{code}__": len(ids) + n for n, code in enumerate(codes)}
    if lacking := sorted(scores.keys() - ids):
        raise LookupError(f"{len(lacking):,} pieces of {PIECES} have no number, as {lacking[0]!r}")
    ranked = sorted((-score, piece) for piece, score in scores.items() if len(piece) > 1)
    merges = [
        (piece[:cut], piece[cut:])
        for _, piece in ranked
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    tokenizer = rust.Tokenizer(
        models.BPE(ids | languages, merges, unk_token="<unk>", fuse_unk=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "never")
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", *languages])
    tree: Settings = json.loads(tokenizer.to_str())
    return tree | {"charsmap": b64encode(model.charsmap).decode()}
