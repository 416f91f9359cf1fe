"""Schemas of the translation API: its limits, the bodies of its requests, its responses."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from foveate.config import Config
from foveate.documents.alternatives import Formality


class Limits(Config):
    """Limits on the size of requests, on their time, and on what is stored."""

    characters: int = Field(50_000, ge=1)  # in all texts of a request
    items: int = Field(1_000, ge=1)  # texts in the list q
    alternatives: int = Field(10, ge=0)
    body: int = Field(2 * 2**20, ge=1)  # bytes
    file_characters: int = Field(200_000, ge=1)  # in the sentences of a file
    file: int = Field(10 * 2**20, ge=1)  # bytes of a body with a file
    in_flight: int = Field(256 * 2**20, ge=1)  # bytes of all bodies that are read or answered
    unknown: int = Field(32 * 2**20, ge=1)  # the same for clients without a key in the head
    seconds: float = Field(60.0, gt=0)  # from the body to the answer
    reading: float = Field(20.0, gt=0)  # seconds in which a head, and then a body, must arrive
    entries: int = Field(5_000, ge=0)  # in the glossary of a request, and in its memory
    phrases: int = Field(200, ge=0)  # banned by a request, and protected by it
    values: int = Field(20_000, ge=1)  # entries in any field, including those in its lists
    glossaries: int = Field(1_000, ge=0)  # stored by clients
    rate: float = Field(0.0, ge=0)  # requests per minute of a key or an address; 0: unlimited
    file_cache: int = Field(256 * 2**20, ge=1)  # bytes of translated files that can be downloaded
    file_minutes: float = Field(20.0, gt=0)  # during which they can be


class Body(BaseModel):
    """A body; unknown fields are ignored, as clients of other servers send some."""

    model_config = ConfigDict(extra="ignore")

    api_key: str = Field("", description="where the server asks for one")


class AssistanceFields(Body):
    """The assistance that a request provides, in addition to the server's."""

    glossary: dict[str, str | list[str]] | str = Field(
        "", description="term: translation, or a list of them; or lines TERM TAB VARIANT|VARIANT"
    )
    memory: dict[str, str] | str = Field(
        "", description="sentence: its translation; or lines SOURCE TAB TARGET"
    )
    fuzzy: float = Field(100.0, ge=50, le=100, description="% of likeness of a match in the memory")
    protect: str | list[str] = Field("", description="a text to leave unchanged, or several")
    ban: str | list[str] = Field("", description="a phrase banned from translations, or several")


class TranslateBody(AssistanceFields):
    """Texts to translate; ``source`` "auto" has the language of each detected."""

    q: str | list[str] = Field(description="a text, or several")
    source: str = Field(description='a code of /languages, or "auto"')
    target: str
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0, description="number of alternative translations per text")
    quality: bool = Field(False, description="adds log p of sentences, and how alternatives differ")


class DetectBody(Body):
    """A text whose language is detected."""

    q: str


class FileBody(AssistanceFields):
    """A file to translate: multipart/form-data."""

    file: str = Field(json_schema_extra={"format": "binary"})
    source: str
    target: str


BODIES: tuple[type[Body], ...] = (TranslateBody, DetectBody, FileBody)


class ServedLanguage(BaseModel):
    """A language and what it can be translated to."""

    code: str
    name: str
    targets: list[str]


class DetectedLanguage(BaseModel):
    """A language and its probability in per cent."""

    confidence: float
    language: str


class SentenceQuality(BaseModel):
    """Log p(translation | source), and its tokens with the end.

    Both are null for a sentence from the memory.
    """

    source: str
    translation: str
    logProbability: float | None
    tokens: int | None


class AlternativeDifference(BaseModel):
    """Differences of an alternative; ``share`` is p divided by that of the translation."""

    logProbability: float
    share: float
    changes: list[tuple[str, str]]  # words of the translation, and those in their place
    formality: Formality


class Translated(BaseModel):
    """Texts for texts, a list for a list; ``cut`` counts tokens of sentences that were too long.

    ``untranslated`` counts sentences that stay in the source language, since no translation of
    them kept their markup or protected texts. ``missingTerms`` are those of the request's glossary
    that the translations lack.
    """

    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None
    cut: int | None = None
    untranslated: int | None = None
    quality: list[SentenceQuality] | list[list[SentenceQuality]] | None = None
    differences: list[AlternativeDifference] | list[list[AlternativeDifference]] | None = None
    missingTerms: list[str] | None = None


class TranslatedFile(BaseModel):
    """The address of the translated file; ``untranslated`` as in `Translated`."""

    translatedFileUrl: str
    untranslated: int | None = None


class ServerStatus(BaseModel):
    """State of the server: it runs, or accepts requests."""

    status: str
