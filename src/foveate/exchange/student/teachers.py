"""Teachers: models, services and files that answer a line with its translation."""

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import NoReturn
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from foveate.config import Tree
from foveate.documents.languages import Direction, name_of
from foveate.engine.answers import TextAnswer, Translator
from foveate.errors import UserError
from foveate.files import split_lines

PROMPT = (
    "Translate the following text from {source} to {target}. Answer with the translation alone.\n\n"
    "{text}"
)
TRIES, PAUSE, LONGEST = 8, 0.5, 60.0  # of a request; seconds before the second, and at most
REFUSED, SPENT, BUSY = (400, 413, 422), (402, 456), (408, 425, 429)  # statuses of 4xx
MOST = 300  # characters of a service's error message


@dataclass(frozen=True)
class Reply:
    """The answer to a line, None if it is refused; its mean log p of a token; tokens paid for."""

    text: str | None
    score: float | None = None
    tokens: int = 0


Replies = dict[str, Reply]  # by the lines that they answer
Translate = Callable[[Sequence[str]], Iterator[Replies]]  # of distinct lines, as answers arrive


@dataclass(frozen=True)
class Teacher:
    """``translate`` is called with ``batch`` lines; if it is ``paid``, with none of them twice.

    ``name`` tells its answers from those of another teacher.
    """

    name: str
    translate: Translate
    batch: int = 500
    paid: bool = False


def of_model(model: Translator, name: str, to: str, beam_size: int | None) -> Teacher:
    """Return a model of ours as a teacher; ``to`` is ignored if it knows one language."""
    tag = to if model.languages else None

    def translate(lines: Sequence[str]) -> Iterator[Replies]:
        answers = model.translate(lines, beam_size=beam_size, to=tag)
        yield dict(zip(lines, map(_reply, answers), strict=True))

    return Teacher(f"{name}, to {tag}, beam {beam_size}", translate)


def _reply(answer: TextAnswer) -> Reply:
    """Return an answer with its log p(y | x) / |y|; None for a source that was cut."""
    if answer.cut or not answer.outputs:
        return Reply(None)
    best = answer.outputs[0]
    return Reply(str(answer), best.log_probability / (1 + len(best.ids)))


def of_ctranslate2(folder: Path, beam_size: int | None) -> Teacher:
    """Return a model in CTranslate2's folder as a teacher. Raises `UserError` without pieces."""
    import ctranslate2  # type: ignore[import-untyped]

    model, (encode, decode) = ctranslate2.Translator(str(folder)), pieces_of(folder)
    choices = {"beam_size": beam_size or 5, "max_batch_size": 32, "return_scores": True}

    def translate(lines: Sequence[str]) -> Iterator[Replies]:
        answers = model.translate_batch([encode(line) for line in lines], **choices)
        replies = [Reply(decode(answer.hypotheses[0]), answer.scores[0]) for answer in answers]
        yield dict(zip(lines, replies, strict=True))

    return Teacher(f"{folder.resolve()}, beam {beam_size}", translate)


def pieces_of(folder: Path) -> tuple[Callable[[str], list[str]], Callable[[list[str]], str]]:
    """Return functions from a text to its pieces and back, by the files in a CTranslate2 folder.

    These are Marian's, those of ``foveate export``, or Argos', which lie above the folder.
    """
    names = "{side}.spm", "{side}.json", "tokenizer.json", "sentencepiece.model"
    places = [*(folder / name for name in names), folder.parent / names[-1]]
    sides = [[str(p).replace("{side}", side) for side in ("source", "target")] for p in places]
    source, target = next((pair for pair in sides if all(map(os.path.isfile, pair))), ("", ""))
    if not source:
        files = ", ".join(names[2:])
        raise UserError(f"{folder}: add its pieces: source.spm and target.spm, {files}")
    if source.endswith(".json"):
        from tokenizers import Tokenizer

        read, write = Tokenizer.from_file(source), Tokenizer.from_file(target)
        ids = write.get_vocab()
        return (
            lambda text: read.encode(text, add_special_tokens=False).tokens,
            lambda pieces: write.decode([ids[piece] for piece in pieces]),
        )
    from sentencepiece import SentencePieceProcessor

    first, second = SentencePieceProcessor(source), SentencePieceProcessor(target)
    end = ["</s>"] * (source.endswith(".spm"))  # Marian's sources end with it
    return lambda text: first.encode_as_pieces(text) + end, second.decode_pieces


def of_file(path: Path, outputs: Sequence[str], sources: Sequence[str]) -> Teacher:
    """Return a file with an output for each source as a teacher."""
    if len(outputs) != len(sources):
        raise UserError(
            f"{path} has {len(outputs):,} lines, the sources {len(sources):,}: write line n as the "
            "translation of line n"
        )
    known = dict(zip(reversed(sources), reversed(outputs), strict=True))
    return Teacher(str(path.resolve()), lambda lines: iter([{x: Reply(known[x]) for x in lines}]))


class _Refusal(Exception):
    """A request whose lines are asked again one by one, or a line that is refused."""


@dataclass
class HttpService:
    """A service that is asked over HTTP, again after a pause if it fails.

    With a ``model`` it has OpenAI's shape (POST /chat/completions with a prompt), else
    LibreTranslate's (POST /translate with a list). The pause before try k + 2 is the larger of
    Retry-After and min(60, 0.5 · 2ᵏ) seconds. ``key_name`` is the environment variable of the key.
    """

    url: str
    pair: Direction
    model: str = ""
    prompt: str = PROMPT
    key_name: str = ""
    key: str = ""
    timeout: float = 60.0
    say: Callable[[str], object] = print

    def teacher(self, batch: int | None) -> Teacher:
        """Return it as a teacher. Raises `UserError` for a prompt without {text}."""
        if "{text}" not in self.prompt:
            raise UserError(f"--prompt {self.prompt!r}: add {{text}}, where the source goes")
        name = " ".join([self.url, self.pair.code, self.model, self.prompt * bool(self.model)])
        return Teacher(name, self.translate, batch or (1 if self.model else 50), paid=True)

    def translate(self, lines: Sequence[str]) -> Iterator[Replies]:
        """Yield the answers to lines, one by one if not all come together."""
        try:
            yield dict(zip(lines, self._ask(lines), strict=True))
        except _Refusal as refusal:
            if len(lines) > 1:
                for line in lines:
                    yield from self.translate([line])
            else:
                self.say(f"{self.url} does not translate {lines[0][:40]!r}: {refusal}")
                yield {lines[0]: Reply(None)}

    def _ask(self, lines: Sequence[str]) -> list[Reply]:
        """Return as many answers as lines. Raises `_Refusal`, or `UserError` after all tries."""
        route = "/chat/completions" if self.model else "/translate"
        head = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        data = json.dumps(self._body(lines)).encode()
        request = Request(self.url.rstrip("/") + route, data, head)
        why = ""
        for attempt in range(TRIES):
            pause = min(LONGEST, PAUSE * 2**attempt)
            try:
                with urlopen(request, None, self.timeout) as response:
                    replies = self._read(json.loads(response.read()), lines)
                if len(replies) == len(lines):
                    return replies
                why = f"{len(replies)} answers to {len(lines)} lines"
                if len(lines) > 1:
                    raise _Refusal(why)
            except HTTPError as error:
                why = self._status(error)
                after = error.headers.get("Retry-After", "")
                pause = max(pause, float(after) if after.isdecimal() else 0.0)
            except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
                why = self._hidden(f"{type(error).__name__}: {error}")
            self.say(f"{self.url}: {why}; next try in {pause:g} s")
            time.sleep(pause)
        self._end(f"{self.url} failed {TRIES} times, at last with {why}: wait until it answers")

    def _body(self, lines: Sequence[str]) -> Tree:
        """Return the body of a request for lines."""
        if not self.model:
            own = {"source": self.pair.source, "target": self.pair.target, "format": "text"}
            return {"q": list(lines), **own, **({"api_key": self.key} if self.key else {})}
        prompt = self.prompt.replace("{source}", name_of(self.pair.source))
        prompt = prompt.replace("{target}", name_of(self.pair.target))
        message = {"role": "user", "content": prompt.replace("{text}", "\n".join(lines))}
        return {"model": self.model, "messages": [message], "temperature": 0}

    def _read(self, tree: Tree, lines: Sequence[str]) -> list[Reply]:
        """Return the answers in a response; raise ``LookupError`` and the like for others."""
        if not self.model:
            return [Reply(str(text)) for text in tree["translatedText"]]
        text = tree["choices"][0]["message"]["content"].strip()
        tokens = math.ceil(((tree.get("usage") or {}).get("total_tokens") or 0) / len(lines))
        return [Reply(x, None, tokens) for x in (split_lines(text) if len(lines) > 1 else [text])]

    def _status(self, error: HTTPError) -> str:
        """Return why a request failed. Raises `UserError` if no other try can succeed."""
        text = b""
        with error, contextlib.suppress(OSError, HTTPException):
            text = error.read(MOST)
        why = f"{error.code} {self._hidden(text.decode('utf-8', 'replace'))}"
        if error.code in REFUSED:
            raise _Refusal(why)
        if error.code in (401, 403):
            self._end(
                f"{self.url} refuses the key ({why}): set {self.key_name or '--key-env NAME'}"
            )
        if error.code in SPENT or "insufficient_quota" in why:
            self._end(f"{self.url} asks for money ({why}): pay in")
        if error.code < 500 and error.code not in BUSY:
            self._end(f"{self.url} answers {why}: check the URL and --model")
        return why

    def _end(self, why: str) -> NoReturn:
        raise UserError(f"{why}, and run the same command again; all answers so far are kept")

    def _hidden(self, text: str) -> str:
        """Return the beginning of a text in one line, without the key."""
        text = " ".join(text.split())[:MOST]
        return text.replace(self.key, "…") if self.key else text
