"""Summarisation: text in, a shorter text out, into which words of the source may be copied.

Each source has an extended vocabulary (See, Liu & Manning, 2017): its words that the vocabulary
lacks have the ids |V|, |V| + 1, … in their order, in the source and in its targets alike. A
pointer-generator (`foveate.models.pointer`) can so write a word that training has never shown.
"""

from collections.abc import Sequence
from typing import Self

import pydantic
from torch import nn

from foveate.data.tokenizer import UNK, TextSides, Tokenizer
from foveate.errors import UserError
from foveate.models.encoder_decoder import Model
from foveate.models.pointer import PointerGenerator
from foveate.tasks.text import Ids, TextBatch, collate
from foveate.tasks.text_to_text import Examples
from foveate.tasks.translation import Translation


class CopyingSides(TextSides):
    """Texts whose targets hold words of their source that no vocabulary has."""

    def tokenizers_of(self, source: str) -> tuple[Tokenizer, Tokenizer]:
        extended = self.source_tokenizer.with_words(source)
        return extended, extended

    def encode_pairs(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[Ids], list[Ids]]:
        ids = [
            self.tokenizers_of(source)[0].encode_ids((source, target)) for source, target in pairs
        ]
        return [source for source, _ in ids], [target for _, target in ids]

    def read_ids(self, lines: Sequence[str]) -> list[Ids]:
        sources, _ = self.encode_pairs([(line, "") for line in self.addressed(lines)])
        return [ids if line.strip() else [] for ids, line in zip(sources, lines, strict=True)]


class Summarisation(Translation):
    """Text in, text out, with words of the source that the vocabulary lacks copied."""

    class Config(Translation.Config, kind="summarisation"):
        """As of a translation; ``joint``: source and target have one vocabulary."""

        @pydantic.model_validator(mode="after")
        def _shared_vocabulary(self) -> Self:
            if not self.joint:
                raise UserError("summarisation copies words: it needs joint = true")
            return self

    never = (UNK,)
    sides_type = CopyingSides

    def build(self, model: Model.Config) -> nn.Module:
        built = super().build(model)
        if not isinstance(built, PointerGenerator):
            raise UserError(
                f'task = "summarisation" copies words, which model = "{model.kind}" cannot; take '
                'model = "pointer_generator" or "see-2017", or task = "translation"'
            )
        return built

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> TextBatch:
        if self.source_tokenizer.noisy:  # pieces of words, which lack none
            return super().batch(split, indices, noise)
        corpus = self.tokens(split).corpus
        pairs = [(corpus.sources[i], corpus.targets[i]) for i in indices]
        return collate(*self.sides.encode_pairs(pairs))

    def read_sources(self, examples: Examples) -> list[Ids]:
        return self.sides.read_ids(examples.corpus.sources)

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of an output; a copied word, whose source is not here, is ``<unk>``."""
        size = self.source_tokenizer.vocab_size
        return super().text_of([i if i < size else UNK for i in ids])

    def token_text(self, ids: Sequence[int], token: int) -> str:
        size = self.source_tokenizer.vocab_size
        known = [i if i < size else UNK for i in (*ids, token)]
        return super().token_text(known[:-1], known[-1])
