"""Small SentencePiece models, wrapped as published vocabularies, and hostile lines."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

from foveate.data.sentencepiece import SentencePiece, SentencePieceModel
from foveate.exchange.published import with_tags

ODD = (
    "</s>", "<unk>", "<pad>", "▁", "▁▁", "\t", "\u00a0", "\u200b", "\u200d", "\u3000", "\ufeff",
    "ﬁ", "Å", "e\u0301", "o\u0308\u0304", "①", "㍿", "ｱ", "ﾞ", "가", "\u1100\u1161", "🇫🇷", "ẞ", "İ",
    "👩\u200d👩\u200d👧", "\x00", "\x01", "\x1b[0m", "\x7f", "\u0085", "\u2028", "\u202e", "½", "ﷺ",
    "٣", "क्षि", "שָׁלוֹם", "日本語", "й", "\u0438\u0306", "\u0327", "\u0301\u0301\u0301", "\ue000",
    "\ufffd", "\U0010ffff", " ", "  ", "a", "b", "the", "une", ".", "?", "5.6", "a" * 90,
)  # fmt: skip
TEXT = (
    "a dog runs over the grass", "the cat sleeps on a chair", "two men talk in the street",
    "a girl reads a book", "un chien court dans l'herbe", "le chat dort sur une chaise",
    "deux hommes parlent dans la rue", "une fille lit un livre", "what is it ?", "ce n'est rien .",
)  # fmt: skip


def hostile(count: int) -> list[str]:
    draw = random.Random(5)

    def character() -> str:
        low, high = draw.choice(
            ((32, 0x250), (0x250, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF))
        )
        return chr(draw.randrange(low, high)).replace("\n", " ")

    def part() -> str:
        return draw.choice(ODD) if draw.random() < 0.8 else character()

    return [
        draw.choice(("", " ")).join(part() for _ in range(draw.randrange(12))) for _ in range(count)
    ]


def trained(folder: Path, rule: str = "nmt_nfkc", size: int = 90) -> Path:
    """Train a SentencePiece model as Marian does, and return its file."""
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT * 3), model_prefix=str(folder / "source"), vocab_size=size,
        hard_vocab_limit=False, normalization_rule_name=rule, pad_id=-1, bos_id=-1, eos_id=0,
        unk_id=1, minloglevel=2,
    )  # fmt: skip
    return (folder / "source.model").rename(folder / "source.spm")


def wrapped(path: Path) -> SentencePiece:
    """Return the tokenizer of a model whose padding is one piece more and also the start."""
    model = SentencePieceModel.read(path)
    ids = {text: i for i, (text, _, _) in enumerate(model.pieces)} | {"<pad>": len(model.pieces)}
    order = with_tags(ids, (1, len(model.pieces), len(model.pieces), 0))
    return SentencePiece.of_model(model, ids, order)


def published(place: Path, tied: bool | None = None) -> Path:
    """Write a Marian model as transformers saves it, with a peaked output so that sentences end.

    Each side has its vocabulary if the output is said to be ``tied`` to the decoder's table or not.
    """
    import torch
    import transformers

    apart = tied is not None
    pieces, more = trained(place, size=60 if apart else 90), place / "more"
    more.mkdir()
    shutil.copy(trained(more) if apart else pieces, place / "target.spm")
    numbers = []
    for side, name in (("source", "vocab.json"), ("target", "target_vocab.json"))[: 1 + apart]:
        listed = SentencePieceModel.read(place / f"{side}.spm").pieces
        numbers.append({text: i for i, (text, _, _) in enumerate(listed)} | {"<pad>": len(listed)})
        (place / name).write_text(json.dumps(numbers[-1]), "utf-8", newline="\n")
    pad = len(numbers[0]) - 1
    torch.manual_seed(3)
    config = transformers.MarianConfig(
        vocab_size=len(numbers[0]), decoder_vocab_size=len(numbers[-1]), d_model=32,
        encoder_layers=2, decoder_layers=2, share_encoder_decoder_embeddings=not apart,
        tie_word_embeddings=tied is not False,
        pad_token_id=pad, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=48, decoder_ffn_dim=48, decoder_start_token_id=pad,
        eos_token_id=0, bos_token_id=0,
        forced_eos_token_id=0, activation_function="swish", scale_embedding=True, init_std=0.4,
    )  # fmt: skip
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        model.final_logits_bias[0, 0] = 4.0
    model.generation_config.update(
        num_beams=4, max_length=40, bad_words_ids=[[pad]], length_penalty=0.7
    )
    model.save_pretrained(place)
    languages = {"source_lang": "en", "target_lang": "fr"}
    languages |= {"separate_vocabs": apart}
    settings = json.dumps({"tokenizer_class": "MarianTokenizer"} | languages)
    (place / "tokenizer_config.json").write_text(settings, "utf-8", newline="\n")
    return place
