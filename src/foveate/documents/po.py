"""gettext PO catalogues, in which only the translations change, and the formats of messages."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from foveate.data.bilingual import LETTERS, Message, messages_of
from foveate.data.catalogue import DataError
from foveate.documents.base import Change, Document, DocumentOptions, changed, decoded
from foveate.documents.spans import DocumentError, Rules
from foveate.documents.translate import Passage, text_passage

# What each format of msgfmt inserts into a message. The last alternative of most is a character
# that is invalid alone: the model does not see it, and any that it invents are removed.

_PRINTF = r"%(?:\d+\$)?[-+ #0'I]*+(?:\*(?:\d+\$)?|\d+)?(?:\.(?:\*(?:\d+\$)?|\d+)?)?"
_LISP = r"~(?:[-+]?\d+|'.|[vV#,])*(?![-+]?\d|'.|[vV#,])[:@]*+(?:.|\n)|~"
_NESTED = r"\{[^{}]*+(?:\{[^{}]*+(?:\{[^{}]*+\}[^{}]*+)*\}[^{}]*+)*\}"
_SIZES = r"(?:<PRI\w+>|(?:hh|ll|wf?\d+|[hlLqjztZ])?"
QUOTE = "\ue000"  # around what '…' quotes in Java's format
FORMATS = {
    "c": rf"{_PRINTF}{_SIZES}[diouxXeEfFgGaAcspnCSm%])|%",
    "objc": rf"{_PRINTF}{_SIZES}[diouxXeEfFgGaAcspnCSm@%])|%",
    "python": r"%(?:\(\w*\))?[-+ #0]*+(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlL]?[diouxXeEfFgGcrsa%]|%",
    "python-brace": rf"\{{\{{|\}}\}}|{_NESTED}|[{{}}]",
    "java": rf"{QUOTE}[^{QUOTE}]*+{QUOTE}|{_NESTED}|[{{}}{QUOTE}]",
    "java-printf": r"%(?:\d+\$|<)?[-#+ 0,(]*+\d*+(?:\.\d+)?(?:[tT]\w|[bBhHsScCdoxXeEfgGaAn%])|%",
    "csharp": rf"\{{\{{|\}}\}}|{_NESTED}|[{{}}]",
    "javascript": rf"{_PRINTF}[bcdefgijoOsuxX%]|%",
    "scheme": _LISP,
    "lisp": _LISP,
    "elisp": rf"{_PRINTF}[diouxXeEfgGcsS%]|%",
    "librep": rf"{_PRINTF}[diouxXeEfgGcsS%]|%",
    "awk": rf"{_PRINTF}[diouxXeEfFgGcs%]|%",
    "tcl": rf"{_PRINTF}[hl]?[diouxXeEfgGcs%]|%",
    "perl": rf"{_PRINTF}v?(?:hh|ll|[hlqLV])?[csduoxXeEfFgGbBpniDUOaA%]|%",
    "perl-brace": r"\{\w+\}",
    "php": r"%(?:\d+\$)?(?:[-+ 0]|'.)*\d*+(?:\.\d+)?[bcdeEfFgGosuxX%]|%",
    "lua": r"%[-+ #0]*+\d*+(?:\.\d+)?[aAcdeEfgGiopqsuxX%]|%",
    "ruby": r"%[-+ #0]*+\d*+(?:\.\d+)?(?:<\w+>[-+ #0]*+\d*+(?:\.\d+)?[diouxXbBeEfgGaAcsp]|\{\w+\})"
    rf"|{_PRINTF}[diouxXbBeEfgGaAcsp%]|%",
    "sh": r"\$\{\w+\}|\$\w+|\$",
    "smalltalk": r"%<[^<>]*>\d|%[\dA-Z%]|%",
    "object-pascal": r"%(?:(?:\d+|\*)?:)?-?(?:\d+|\*)?(?:\.(?:\d+|\*))?[dueEfFgGnmspxX%]|%",
    "ycp": r"%[1-9%]|%",
    "qt": r"%L?(?:\d{1,2}|n)",
    "qt-plural": r"%L?(?:\d{1,2}|n)",
    "kde": r"%\d+",
    "kde-kuit": r"%\d+|</?[A-Za-z][^<>]*>|&#?\w+;|[<>&]",
    "boost": r"%\|[^|\n]*\||%\d+%|%(?:\d+\$)?[-+ #0_=]*+(?:\*|\d+)?(?:\.(?:\*|\d+))?"
    r"(?:hh|ll|[hlL])?[diouxXeEfgGcsSpnT%]|%",
    "gcc-internal": r"%(?:\d+\$)?[-q+#lwzt]*+(?:\.(?:\*(?:\d+\$)?|\d+))?[A-Za-z<>'%{}]|%",
    "gfc-internal": r"%(?:\d+\$)?[lwq]*+[A-Za-z<>%]|%",
}
MARKUP = (  # in documentation: reStructuredText, Markdown, HTML
    r"``[^`\n]+(?:`(?!`)[^`\n]*+)*``",
    r":[A-Za-z][\w.+-]*+(?::(?!`)[\w.+-]*+){0,9}:`[^`]+`|`[^`\n]+`(?::[A-Za-z][\w.+-]*+:|__?(?!\w))?",
    r"\*\*(?=[^\s*])|(?<=[^\s*])\*\*",
    r"\|[^\s|](?:[^|\n]*[^\s|])?\|_?|\[(?:\d+|#\w*|\*|[A-Za-z][\w.-]*)\]_(?!\w)",
    r"!?\[\]\([^()\s]*\)|\]\([^()\s]*\)",
    r"&(?:#\d+|#[xX][\da-fA-F]+|[A-Za-z]\w*);",
)


@lru_cache(maxsize=256)
def rules_of(rules: Rules, formats: tuple[str, ...]) -> Rules:
    """Return the rules for messages in some gettext formats, which also protect markup."""
    return Rules((*rules.own, *[FORMATS[name] for name in formats if name in FORMATS], *MARKUP))


_JAVA = re.compile(rf"''|'(?:[^']|'')*'?|{_NESTED}")
_JAVA_SHOWN = re.compile(rf"({QUOTE}[^{QUOTE}]*{QUOTE}|{_NESTED})")


def java_shown(text: str) -> str:
    """Return a text in Java's format with plain apostrophes, and `QUOTE` for its quotes."""

    def shown(match: re.Match[str]) -> str:
        token = match.group()
        if token == "''" or token[0] == "{":
            return "'" if token == "''" else token
        return f"{QUOTE}{token[1:].removesuffix(chr(39))}{QUOTE}"

    return _JAVA.sub(shown, text)


def java_written(text: str) -> str:
    """Return the text that `java_shown` turns into ``text``."""
    return "".join(
        part.replace(QUOTE, "'") if n % 2 else part.replace("'", "''")
        for n, part in enumerate(_JAVA_SHOWN.split(text))
    )


_PLURALS = re.compile(r"nplurals\s*=\s*(\d{1,9})")
_CHARSET = re.compile(r"(?<=charset=)[\w.:-]+")
_ENCODINGS = re.compile(r"iso|latin|koi8|cp\d|windows-\d|gb|euc|big5|shift|johab|tis", re.I)
_WRITTEN = str.maketrans({"\\": r"\\", '"': r"\"", **{c: f"\\{n}" for n, c in LETTERS.items()}})
WIDTH = 79  # columns in a line, if a file wraps its lines


def _whole(message: Message, where: str) -> Message:
    """Return a message. Raises ``DocumentError`` if it lacks its text or its translations."""
    plural = "msgid_plural" in message.texts
    expected = [f"msgstr[{n}]" for n in range(len(message.forms))] if plural else ["msgstr"]
    if "msgid" not in message.texts or not message.forms:
        raise DocumentError(f"{where}:{message.line} is a message without msgid or msgstr")
    if message.forms != expected:
        raise DocumentError(
            f"{where}:{message.line} has {', '.join(message.forms)}: "
            f"{'its forms' if plural else 'a message without msgid_plural'} should be "
            f"{'msgstr[0], msgstr[1], …' if plural else 'msgstr'}"
        )
    return message


def read_po(data: bytes, options: DocumentOptions, where: str) -> Document:
    """Read a gettext catalogue: messages without a translation get one, marked as fuzzy.

    The first plural form is the translation of the singular, all others that of the plural; their
    number is in the header. All other bytes stay: comments, wrapping, obsolete messages. Raises
    ``DocumentError`` for a line that is not valid in a PO file, and for a message with the wrong
    number of forms.
    """
    text, encoding = _text_of(data, where)
    try:
        messages = [_whole(each, where) for each in messages_of(text, where) if not each.obsolete]
    except DataError as error:
        raise DocumentError(str(error)) from None
    header = next((m.texts["msgstr"] for m in messages if m.is_header and "msgstr" in m.texts), "")
    line = re.search(r"Plural-Forms:([^\n]*)", header)
    match = _PLURALS.search(line[1]) if line else None
    plurals = int(match[1]) if match else 0
    if match and not 1 <= plurals <= 9:
        raise DocumentError(f"{where}: nplurals={match[1]} in Plural-Forms: there are 1 to 9")
    many = match is not None and "%" in match.string  # the first form is for 1, 21, 31
    for message in messages:
        if 0 < plurals < len(message.forms):
            raise DocumentError(
                f"{where}:{message.line} has {', '.join(message.forms)}; its forms should be "
                f"msgstr[0] to msgstr[{plurals - 1}]"
            )
    own = [m for m in messages if not m.is_header]
    chosen = [m for m in own if options.again or not all(m.texts[key] for key in m.forms)]
    catalogue = _Catalogue(text, plurals, many, options)
    each = [(f"line {m.line}", passage) for m in chosen for passage in catalogue.passages(m)]
    passages = [passage for _, passage in each]

    def written(texts: Sequence[str]) -> bytes:
        left = iter(texts)
        changes = (change for m in chosen for change in catalogue.changes(m, left))
        return _encoded(changed(text, changes), encoding)

    note, units = f", {len(own) - len(chosen):,} messages left", [unit for unit, _ in each]
    return Document(passages, written, note, units)


def _text_of(data: bytes, where: str) -> tuple[str, str]:
    """Return the text of a catalogue, and the encoding that its header declares."""
    match = _CHARSET.search(data[:10_000].decode("ascii", "replace"))
    if match is None or match[0].lower() in ("utf-8", "utf8"):
        return decoded(data, where), "utf-8"
    if not _ENCODINGS.match(match[0]):  # CHARSET, as in templates, or ASCII
        return decoded(data, where), "ascii"
    try:
        return data.decode(match[0]), match[0]
    except (LookupError, UnicodeError):
        raise DocumentError(f"{where} is not {match[0]}, as its header says") from None


def _encoded(text: str, encoding: str) -> bytes:
    """Encode a catalogue in its encoding, or else in UTF-8, which the header then declares."""
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        return _CHARSET.sub("UTF-8", text, count=1).encode()


@dataclass(frozen=True)
class _Catalogue:
    """Reads and writes the messages of a catalogue."""

    text: str
    plurals: int  # forms that the header declares, or 0
    many: bool  # whether the first of them is for many numbers
    options: DocumentOptions

    def passages(self, message: Message) -> list[Passage]:
        """Return the passages of a message: its text, and its plural."""
        names = (flag.removesuffix("-format") for flag in message.flags if "-format" in flag)
        formats = tuple(name for name in names if name in FORMATS)
        rules = rules_of(self.options.rules, formats)
        texts = [message.texts[key] for key in ("msgid", "msgid_plural") if key in message.texts]
        if "java" in formats and any("{" in text or "''" in text for text in texts):
            return [text_passage(java_shown(text), rules, java_written) for text in texts]
        return [text_passage(text, rules) for text in texts]

    def changes(self, message: Message, texts: Iterator[str]) -> Iterator[Change]:
        """Yield the spans to replace for a message, whose texts are next, with the new strings."""
        line, singular, keys = self._end, next(texts), message.forms
        forms = [singular]
        if "msgid_plural" in message.texts:
            plural, count = next(texts), self.plurals or len(message.forms)
            rules = rules_of(self.options.rules, ())
            both = [rules.count([message.texts[key]]) for key in ("msgid", "msgid_plural")]
            whole = count > 1 and not (self.many and both[0] != both[1])
            forms = [singular if whole else plural, *[plural] * (count - 1)]
            keys = [f"msgstr[{n}]" for n in range(count)]
        start, end = message.spans[message.forms[0]][0], message.spans[message.forms[-1]][1]
        new = [
            _strings(key, form, line, self._wraps) for key, form in zip(keys, forms, strict=True)
        ]
        yield start, end, line.join(new)
        if self.options.draft and "fuzzy" not in message.flags:
            yield self._flagged(message, line)

    def _flagged(self, message: Message, line: str) -> Change:
        """Return the span and text of the flag fuzzy: first among the flags, or on a new line."""
        for place, comment in message.comments:
            if comment.startswith("#,"):
                rest = "," if re.search(r"\w", comment) else ""
                return place + 2, place + 2, f" fuzzy{rest}"
        before = (place for place, comment in message.comments if comment.startswith("#|"))
        place = next(before, message.start)
        glued = self.text[self.text.rfind("\n", 0, place) + 1 : place].strip()
        return place, place, f"{line if glued else ''}#, fuzzy{line}"

    @cached_property
    def _end(self) -> str:
        """The line end."""
        return "\r\n" if "\r\n" in self.text else "\n"

    @cached_property
    def _wraps(self) -> bool:
        """True if texts are wrapped: no line is longer than that of a terminal."""
        return all(len(row) <= WIDTH + 1 or row[:1] == "#" for row in self.text.split("\n"))


def _strings(key: str, text: str, line: str, wraps: bool) -> str:
    """Return a keyword and its text, with one string per line of the text."""
    rows = [row.translate(_WRITTEN) for row in re.findall(r"[^\n]*\n|[^\n]+", text)]
    if wraps and (len(rows) > 1 or len(f'{key} "{text}"') > WIDTH):
        rows = [part for row in rows for part in _wrapped(row, WIDTH - 2)]
        rows = ["", *rows]
    elif len(rows) > 1:
        rows = ["", *rows]
    return f"{key} " + line.join(f'"{row}"' for row in rows or [""])


def _wrapped(row: str, width: int) -> Iterator[str]:
    """Yield the lines of a row, cut after spaces."""
    part = ""
    for word in re.findall(r"[^ ]* +|[^ ]+", row):
        if part and len(part) + len(word) > width:
            yield part
            part = ""
        part += word
    yield part
