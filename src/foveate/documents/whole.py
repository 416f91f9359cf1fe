"""A document translated by a run or a packed file."""

from collections.abc import Sequence
from dataclasses import replace

from foveate.data.bilingual import language_of
from foveate.documents.base import Document, DocumentOptions
from foveate.documents.languages import corpora_of, directions
from foveate.documents.memory import AssistedRun, aligner
from foveate.documents.translate import joined_all
from foveate.engine.answers import TextAnswer, TranslateOptions, Translator
from foveate.errors import ConfigError


def with_languages(run: Translator | AssistedRun, options: DocumentOptions) -> DocumentOptions:
    """The options with the languages that a run translates from and into, where its files tell.

    Raises ``ConfigError`` where the run is known not to translate into the language of the options.
    """
    run = run.run if isinstance(run, AssistedRun) else run
    try:
        known = directions(corpora_of(run.path), run.path)
    except ConfigError:
        return options
    if options.to is not None:
        fitting = [d for d in known if language_of(d.target) == language_of(options.to)]
        if not fitting:
            names = ", ".join(f"{d.source} to {d.target}" for d in known)
            raise ConfigError(f"--to {options.to}: {run.path} translates from {names}")
        known = fitting
    sources, targets = {d.source for d in known}, {d.target for d in known}
    return replace(
        options,
        source=sources.pop() if len(sources) == 1 else None,
        to=options.to or (targets.pop() if len(targets) == 1 else None),
    )


def translate_document(
    run: Translator | AssistedRun, document: Document, search: TranslateOptions
) -> tuple[bytes, list[TextAnswer]]:
    """Return the document in the other language, and the answers to its sentences.

    `Document.stayed` counts those that are left, since no place in the answer kept their spans.
    """
    own = run.run if isinstance(run, AssistedRun) else run
    if not own.languages:
        search = {**search, "to": None}  # it names the language of the document
    answers = run.translate(document.sentences, **search) if document.sentences else []
    return with_answers(document, answers, own, search.get("to")), answers


def with_answers(
    document: Document, answers: Sequence[TextAnswer], run: Translator, to: str | None
) -> bytes:
    """Return the document with the answers of a run to its sentences."""
    each, align = document.answers(map(str, answers)), aligner(run, to if run.languages else None)
    return document.written(joined_all(document.passages, each, align))
