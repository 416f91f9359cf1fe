"""Texts that a language model continues, and what its attention saw of a text.

Lives here: prompts to ids, ids to text, labels of the axes. Does not live here: the searches
(`foveate.decode`), and how a language model is trained (`foveate.tasks.language`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foveate.data.tokenizer import BOS, EOS, PAD, Tokenizer
from foveate.decode.forced import token_log_probabilities
from foveate.decode.sample import Sample as Sampling
from foveate.decode.steps import Search
from foveate.look.forced import ForcedPass, Maps
from foveate.look.record import AttentionRecord
from foveate.look.words import Units, to_words
from foveate.models.language_model import LanguageModel, LanguageSteps
from foveate.tasks.base import Sample, Task
from foveate.tasks.labels import Axis, TokenizedText, namer

NEVER = PAD  # stands for an end that no text has
SHOWN = 60  # tokens of a sample
SHORT = {"max_ratio": 0.0, "max_extra": SHOWN, "temperature": 0.8}  # how samples are drawn
ROWS = 64  # texts continued together
END_OF_LINE = "⏎"


@dataclass(frozen=True)
class Generation:
    """A prompt and how it goes on.

    ``log_probability`` is Σ log p of the new tokens by the model, whatever filters did to it,
    among the tokens that a text can hold.
    """

    prompt: str
    text: str
    log_probability: float

    def __str__(self) -> str:
        return self.prompt + self.text


class Generating(Task[Tensor]):
    """A task whose model continues texts."""

    class Config(Task.Config):
        """Nothing to choose."""

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """What cuts the text into tokens."""

    @abstractmethod
    def examples(self, split: str) -> Any:
        """The stream of a split, whose ``ids`` are samples' beginnings."""

    def reach(self, model: LanguageModel) -> int | None:
        """How many tokens the model may read at once; None where its state does not grow."""
        block: int = self.config.block_length  # type: ignore[attr-defined]
        return None if model.decoder.constant_memory else block

    def ids_of(self, text: str) -> list[int]:
        """The ids of a text of any number of lines, an end of line between each two."""
        lines = self.tokenizer.encode_ids(text.split("\n"))
        return [i for line in lines for i in (EOS, *line)][1:]

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of some ids."""
        lines: list[list[int]] = [[]]
        for i in ids:
            if i == EOS:
                lines.append([])
            else:
                lines[-1].append(i)
        return "\n".join(map(self.tokenizer.decode, lines))

    # ---- going on

    @torch.inference_mode()
    def generate(
        self,
        model: LanguageModel,
        prompts: Sequence[str],
        search: Search,
        num: int = 1,
        whole_lines: bool = False,
        listen: Callable[[str], None] | None = None,
    ) -> list[Generation]:
        """``num`` continuations of each prompt, one prompt after the other.

        ``whole_lines`` ends a text at the end of its line. ``listen`` gets the text so far at each
        step; it hears one prompt, continued once.
        """
        ids = [self.ids_of(prompt) for prompt in prompts for _ in range(num)]
        found: list[Generation] = [Generation("", "", 0.0)] * len(ids)
        for rows in _alike(ids):
            prompt = torch.tensor([ids[r] for r in rows], dtype=torch.long)
            prompt = prompt.reshape(len(rows), -1).to(model.output.weight.device)
            tap = None if listen is None else self._told(ids[rows[0]], listen)
            steps = LanguageSteps(model, prompt, self.reach(model), (PAD, BOS), tap)
            end = EOS if whole_lines else NEVER
            outputs = search(steps, [0] * len(rows), EOS, end, rows)
            for row, (best, *_) in zip(rows, outputs, strict=True):
                text = self._after(ids[row], best.ids)
                found[row] = Generation(prompts[row // num], text, best.log_probability)
        return found

    def _after(self, prompt: list[int], output: list[int]) -> str:
        """The text that an output adds to its prompt."""
        return self.text_of([*prompt, *output])[len(self.text_of(prompt)) :]

    def _told(self, prompt: list[int], listen: Callable[[str], None]) -> Callable[[Tensor], None]:
        written: list[int] = []

        def tap(ids: Tensor) -> None:
            written.append(int(ids[0]))
            listen(self._after(prompt, written))

        return tap

    def samples(self, model: LanguageModel, stream: Any, count: int) -> list[Sample]:
        """Beginnings from all over a text, how the text goes on, and how the model does."""
        search = Sampling.Config.parse(SHORT).build()
        step = max(1, (len(stream) - 2 * SHOWN) // count)
        places = range(0, max(1, len(stream) - 2 * SHOWN), step)[:count]
        pieces = [stream.ids[p : p + 2 * SHOWN].tolist() for p in places]
        starts = [self.text_of(piece[:SHOWN]) for piece in pieces]
        found = self.generate(model, starts, search)
        return [
            Sample(start, self._after(piece[:SHOWN], piece[SHOWN:]), made.text)
            for start, piece, made in zip(starts, pieces, found, strict=True)
        ]

    # ---- looking

    def forced(
        self,
        model: LanguageModel,
        source: str,
        target: str | None = None,
        search: Search | None = None,
    ) -> ForcedPass:
        """A text, and the target after it, being predicted, and the end of its last line.

        Rows are what is produced, columns what was read before it. The row of a word is the mean
        of its tokens' rows. Without
        attention (recurrent networks, windows of words) there is no map.
        """
        ids = self.ids_of(source + (target or ""))
        limit = self.reach(model)
        notes = []
        if limit is not None and len(ids) >= limit:
            notes.append(f"the first {limit - 1} of {len(ids)} tokens: the model reads no more")
            ids = ids[: limit - 1]
        text = torch.tensor([[EOS, *ids, EOS]], device=model.output.weight.device)

        def run() -> Tensor:
            return token_log_probabilities(model(text[:, :-1]), text[:, 1:])[0]

        def named(maps: Maps, units: Units) -> AttentionRecord:
            rows, columns = self._axis([*ids, EOS], units), self._axis([EOS, *ids], units)
            words = {
                name: np.stack([to_words(w, rows[0], columns[0]) for w in weights])
                for name, weights in maps.items()
            }
            title = " ".join(self.text_of(ids).split())
            return AttentionRecord(words, {"": rows[1]}, {"": columns[1]}, title, notes)

        token = self.name_of
        pieces = self._axis([EOS, *ids, EOS], "tokens")[1]
        return ForcedPass(model, run, named, pieces[1:], {"decoder": pieces[:-1]}, token=token)

    def name_of(self, i: int) -> str:
        """The text of an id; an end of line has a sign."""
        return END_OF_LINE if i == EOS else namer(self.tokenizer)(i)

    def _axis(self, ids: Sequence[int], units: Units) -> Axis:
        """The tokens of each row or column, ends of lines by themselves, and the labels."""
        groups: list[list[int]] = []
        labels: list[str] = []
        for start, line in _lines(ids):
            written = TokenizedText.written(self.tokenizer, line)
            pieces, names = ([[0]], [END_OF_LINE]) if line == [EOS] else written.axis(units)
            groups += [[start + piece for piece in group] for group in pieces]
            labels += names
        return groups, labels


def _lines(ids: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """The runs of ids between ends of lines, and the ends, each with its place."""
    start = 0
    for place, i in enumerate([*ids, EOS]):
        if i == EOS:
            if place > start:
                yield start, list(ids[start:place])
            if place < len(ids):
                yield place, [EOS]
            start = place + 1


def _alike(ids: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Rows whose prompts are as long: no prompt is padded, so that none changes another."""
    lengths: dict[int, list[int]] = {}
    for row, prompt in enumerate(ids):
        lengths.setdefault(len(prompt), []).append(row)
    for rows in lengths.values():
        yield from (rows[n : n + ROWS] for n in range(0, len(rows), ROWS))
