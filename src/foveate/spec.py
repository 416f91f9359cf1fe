"""What enters and leaves a model, as far as the data decides it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tokens:
    """Sequences of ids from a vocabulary; id 1 is padding."""

    vocab_size: int
