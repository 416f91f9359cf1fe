"""Assistance that a request provides: terms, a memory, phrases, texts to leave unchanged."""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from foveate.config import ConfigError
from foveate.data.text import unique_keys
from foveate.documents.languages import Direction
from foveate.documents.memory import (
    Assistance,
    Glossary,
    TermEntry,
    TranslationMemory,
    Variants,
    entries_of_lines,
    pairs_of_tsv,
    terms_of,
    whole_words,
)
from foveate.documents.spans import Rules
from foveate.errors import UserError
from foveate.serve.batching import DirectionAssistance
from foveate.serve.common import RequestError, check_count
from foveate.serve.runs import ServedRun
from foveate.serve.translation_schemas import AssistanceFields, Limits

T = TypeVar("T")
STORED = 32  # assistances of requests, shared by later requests with equal options
_making = threading.Lock()  # so that requests at the same time share theirs too


@dataclass(frozen=True)
class RequestOptions:
    """The validated options of a request. Requests with equal options share batches."""

    glossary: tuple[tuple[str, Variants], ...] = ()
    memory: tuple[tuple[str, str], ...] = ()
    fuzzy: float = 100.0  # minimum similarity of a match in the memory in %
    banned: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()

    def rules(self, base: Rules, texts: Iterable[str] | None = None) -> Rules:
        """Return the server's rules and one for the protected texts that ``texts`` may contain."""
        if not self.protected:
            return base
        whole = None if texts is None else "\n".join(texts)
        there = [p for p in self.protected if whole is None or p.split()[0] in whole]
        return Rules((whole_words(there), *base.own)) if there else base


def provided(fields: AssistanceFields) -> bool:
    """Return whether a body has any assistance."""
    return any((fields.glossary, fields.memory, fields.protect, fields.ban))


def options_of(fields: AssistanceFields, limits: Limits) -> RequestOptions:
    """Return the options in a body. Raises `RequestError` (400) with the field and the entry."""
    if not provided(fields):
        return RequestOptions(fuzzy=fields.fuzzy)
    try:
        terms = terms_of(_bounded("glossary", _entries(fields.glossary, limits), limits))
        pairs = dict(_bounded("memory", _pairs(fields.memory, limits), limits))
    except ConfigError as error:
        raise RequestError(400, str(error)) from None
    return RequestOptions(
        tuple(terms.items()),
        tuple(pairs.items()),
        fields.fuzzy,
        _phrases("ban", fields.ban, limits),
        _phrases("protect", fields.protect, limits),
    )


def _bounded(name: str, entries: Iterable[T], limits: Limits) -> Iterator[T]:
    """Yield the entries. Raises `RequestError` (413) as soon as there are too many."""
    for number, entry in enumerate(entries):
        if number == limits.entries:
            raise RequestError(413, f"{name}: at most {limits.entries:,} entries")
        yield entry


def json_tree(text: str | bytes, name: str, wrong: str) -> object:
    """Return the value in a JSON text. Raises `RequestError` (400) if it is ``wrong``."""
    try:
        tree = json.loads(text, object_pairs_hook=unique_keys)
        json.dumps(tree, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise RequestError(400, f"{name} contains a lone surrogate (half a character)") from None
    except UserError as error:
        raise RequestError(400, f"invalid request: an object {str(error)[:60]}") from None
    except (ValueError, RecursionError):
        raise RequestError(400, wrong) from None
    return tree


def _object(
    name: str, field: Mapping[str, object] | str, limits: Limits
) -> Mapping[str, object] | None:
    """Return the object in a field, which in a form is JSON; None if it has lines."""
    if not isinstance(field, str):
        return field
    if len(field) > limits.body:
        raise RequestError(413, f"{name}: at most {limits.body:,} characters")
    if not field.lstrip().startswith("{"):
        return None
    tree = json_tree(field, name, f"{name} begins with {{ but is not a JSON object")
    check_count(name, tree, limits.values)
    assert isinstance(tree, dict)
    return tree


def _entries(field: Mapping[str, str | list[str]] | str, limits: Limits) -> Iterator[TermEntry]:
    """Yield the entries of a glossary: an object, or lines TERM TAB VARIANT|VARIANT."""
    if (tree := _object("glossary", field, limits)) is None:
        yield from entries_of_lines(str(field), "glossary")
        return
    for term, value in tree.items():
        variants = value if isinstance(value, list) else [value]
        texts = [variant for variant in variants if isinstance(variant, str)]
        if len(texts) < len(variants):
            raise RequestError(400, f"glossary: the translation of {term!r} is not a string")
        yield TermEntry(f"glossary: {term!r}", term, texts)


def _pairs(field: Mapping[str, str] | str, limits: Limits) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a memory: an object, or lines SOURCE TAB TARGET."""
    tree = _object("memory", field, limits)
    lines = pairs_of_tsv(str(field).encode(), "memory") if tree is None else ()
    for source, target in lines if tree is None else tree.items():
        if not source.strip() or not isinstance(target, str) or not target.strip():
            raise RequestError(400, f"memory: {source!r} needs a sentence and its translation")
        yield source, target


def _phrases(name: str, field: str | Sequence[str], limits: Limits) -> tuple[str, ...]:
    phrases = tuple(dict.fromkeys([field] if isinstance(field, str) else field))
    phrases = () if field == "" else phrases
    if any(not phrase.strip() for phrase in phrases):
        raise RequestError(400, f"{name}: an entry is empty; remove it")
    if len(phrases) > limits.phrases or sum(map(len, phrases)) > 100 * limits.phrases:
        message = f"{name}: at most {limits.phrases:,} entries of 100 characters each"
        raise RequestError(413, message)
    return phrases


def assistance_of(
    served: ServedRun, direction: Direction, options: RequestOptions
) -> DirectionAssistance | None:
    """Return the assistance for a direction, in which the request's terms and sources override.

    Raises `RequestError` (400) for a term that is banned, by the server or the request, and if
    the run's search cannot force terms.
    """
    if not (options.glossary or options.memory or options.banned):  # the search is not assisted
        return served.assistance.get(direction)
    with _making:
        return _requested(served, direction, replace(options, protected=()))


@lru_cache(STORED)
def _requested(
    served: ServedRun, direction: Direction, options: RequestOptions
) -> DirectionAssistance:
    """Return the assistance for a request in addition to the server's, one for equal options."""
    own = served.assistance.get(direction)
    base = Assistance() if own is None else own.assistance
    glossary, memory = base.glossary, base.memory
    if options.glossary:
        terms = {} if glossary is None else glossary.terms
        glossary = Glossary({**terms, **dict(options.glossary)})
    if options.memory:
        memory = TranslationMemory(dict(options.memory), options.fuzzy, memory)
    banned = tuple(dict.fromkeys((*base.banned, *options.banned)))
    try:
        assistance = replace(base, glossary=glossary, memory=memory, banned=banned)
        assistance.refuse(served.search, f"the model {served.name}")
    except ConfigError as error:
        raise RequestError(400, f"glossary, ban: {error}") from None
    return DirectionAssistance(assistance, served.requested)
