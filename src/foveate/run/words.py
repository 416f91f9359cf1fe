"""The words of a text that occur in no source of a run's training data."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from weakref import WeakKeyDictionary

from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.data.tokenizer import UNK, Tokenizer
from foveate.engine.answers import Translator
from foveate.run import read_run
from foveate.tasks.base import AnyTask
from foveate.tasks.text_to_text import TextToText

MOST_LINES = 200_000  # of training data that are searched for the words of a text
WORD = re.compile(r"[^\W\d_]+")
_WORDS: WeakKeyDictionary[AnyTask, set[str]] = WeakKeyDictionary()  # in the sources of a task


def unknown_words(task: AnyTask, text: str) -> list[str]:
    """Return the words of a text that are in no training source, ignoring case.

    Without the data, or with more than `MOST_LINES` lines: those that the tokenizer lacks.
    """
    tokenizer = next(iter(task.tokenizers_by_name().values()), None)
    if tokenizer is None:
        return []
    if not isinstance(task, TextToText):
        return words_without_piece(tokenizer, text)
    if task not in _WORDS:
        known: set[str] = set()
        try:
            for number, (_, source, _) in enumerate(chain.from_iterable(task.readings("train"))):
                if number == MOST_LINES:
                    known.clear()
                    break
                known.update(WORD.findall(source.casefold()))
        except (OSError, ConfigError, DataError):
            known.clear()
        _WORDS[task] = known
    if not (known := _WORDS[task]):
        return words_without_piece(tokenizer, text)
    return [word for word in dict.fromkeys(WORD.findall(text)) if word.casefold() not in known]


def words_without_piece(tokenizer: Tokenizer, text: str) -> list[str]:
    """Return the parts of a text that a tokenizer reads as unknown."""
    encoded = tokenizer.encode(text)
    pairs = zip(encoded.ids, encoded.offsets, strict=True)
    return list(dict.fromkeys(text[a:b] for i, (a, b) in pairs if i == UNK))


def word_search(model: Translator) -> Callable[[str], list[str]]:
    """Return `unknown_words` of the run of a model, which is not loaded, if it is in a run."""
    folder = model.path if model.path.is_dir() else model.path.parent
    with suppress(ConfigError, DataError, OSError):
        config = read_run(folder)
        task = config.task.build(config.data)
        task.restore(folder)
        return partial(unknown_words, task)
    return partial(words_without_piece, model.sides("translate").source_tokenizer)
