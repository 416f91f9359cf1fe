"""Outputs that are valid UTF-8: the automaton's state after each token of a vocabulary."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foveate.data.tokenizer import SILENT, Tokenizer

WHOLE, REJECTED, STATES = 0, 8, 8
PADDING = 256  # follows the bytes of a token and changes no state


def automaton() -> NDArray[np.int8]:
    """Return δ (states + 1, bytes + 1) of UTF-8: 0 between characters, 8 rejected.

    States 1, 2 and 3 wait for as many continuation bytes; 4 to 7 follow E0, ED, F0 and F4, whose
    next byte is restricted.
    """
    delta = np.full((STATES + 1, PADDING + 1), REJECTED, dtype=np.int8)
    delta[:, PADDING] = range(STATES + 1)
    for first, last, state in (
        (0x00, 0x7F, 0), (0xC2, 0xDF, 1), (0xE0, 0xE0, 4), (0xE1, 0xEC, 2), (0xED, 0xED, 5),
        (0xEE, 0xEF, 2), (0xF0, 0xF0, 6), (0xF1, 0xF3, 3), (0xF4, 0xF4, 7),
    ):  # fmt: skip
        delta[WHOLE, first : last + 1] = state
    for state, first, last, after in (
        (1, 0x80, 0xBF, 0), (2, 0x80, 0xBF, 1), (3, 0x80, 0xBF, 2), (4, 0xA0, 0xBF, 1),
        (5, 0x80, 0x9F, 1), (6, 0x90, 0xBF, 2), (7, 0x80, 0x8F, 2),
    ):  # fmt: skip
        delta[state, first : last + 1] = after
    return delta


def token_states(tokenizer: Tokenizer) -> NDArray[np.int64] | None:
    """Return the state after each token (S, V); None if every piece is valid UTF-8 by itself."""
    states = _states(tokenizer.surfaces)
    if bool((states[WHOLE] == WHOLE).all()):
        return None
    states[1:, sorted(SILENT)] = REJECTED  # an end inside a character
    return states


def _states(pieces: Sequence[bytes]) -> NDArray[np.int64]:
    """Return δ of whole tokens (S, V)."""
    lengths = np.array([len(piece) for piece in pieces])
    flat = np.frombuffer(b"".join(pieces), dtype=np.uint8)
    starts, delta = lengths.cumsum() - lengths, automaton()
    states = np.repeat(np.arange(STATES, dtype=np.int64)[:, None], len(pieces), axis=1)
    for place in range(int(lengths.max(initial=0))):
        longer = np.flatnonzero(lengths > place)
        states[:, longer] = delta[states[:, longer], flat[starts[longer] + place]]
    return states
