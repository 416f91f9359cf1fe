"""PO catalogues: msgfmt accepts what comes out, and all bytes but the translations stay."""

import re
import shutil
import subprocess
from pathlib import Path

import polib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from document_tools import aligned, answered, opened
from foveate.documents.po import FORMATS, java_shown, java_written

HEADER = (
    'msgid ""\nmsgstr ""\n"Project-Id-Version: x 1\\n"\n"Content-Type: text/plain; '
    'charset=UTF-8\\n"\n"Plural-Forms: nplurals=%s;\\n"\n\n'
)


def translated(text: str | bytes, answer: str = "", step: int = 1, **options: object) -> bytes:
    """A catalogue each of whose sentences is translated by an answer, else by capitals."""
    return answered(opened("po", text, **options), lambda s: answer or s.upper(), aligned(step))


def message(text: str, flags: str = "", plural: str = "") -> str:
    quoted = [
        t.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for t in (text, plural)
    ]
    forms = f'msgid_plural "{quoted[1]}"\nmsgstr[0] ""\nmsgstr[1] ""\n' if plural else 'msgstr ""\n'
    return (f"#, {flags}\n" if flags else "") + f'msgid "{quoted[0]}"\n{forms}\n'


def check(data: bytes, path: Path) -> None:
    """msgfmt finds no fault: it compares what each message and its translation insert."""
    if shutil.which("msgfmt") is None:
        pytest.skip("this system has no msgfmt")
    path.write_bytes(data)
    command = ["msgfmt", "--check-format", "-o", "/dev/null", path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}\n{data.decode()}"


PRINTF = ["%d", "%s", "%5.1f", "%-3d", "%%"]
DIRECTIVES = {
    "c": [*PRINTF, "%ld", "%lu", "%zu", "%g", "%<PRId64>", "% d", "%*d", "%hhx", "%i", "%c"],
    "objc": [*PRINTF, "%@", "%ld"],
    "python": [*PRINTF, "%r", "%i"],
    "python-brace": ["{}", "{name}", "{0.x[1]}", "{a:>{w}}", "{n!r}", "{{", "}}"],
    "java": ["{0}", "{1,number,integer}", "{1, number, integer}", "{2,date,short}", "''", "'{'"],
    "java-printf": ["%s", "%1$s", "%d", "%,d", "%n", "%%", "%.2f"],
    "csharp": ["{0}", "{1,10:F2}", "{2:yyyy}", "{{", "}}"],
    "javascript": ["%s", "%d", "%j", "%%"],
    "scheme": ["~a", "~s", "~%", "~~", "~5,2F"],
    "lisp": ["~a", "~S", "~D", "~%", "~~", "~5,2F"],
    "elisp": ["%s", "%d", "%c", "%%", "%S"],
    "librep": ["%s", "%d", "%c", "%%", "%S"],
    "awk": ["%s", "%d", "%c", "%%", "%5.1f"],
    "tcl": ["%s", "%d", "%ld", "%%", "%2$s"],
    "perl": ["%s", "%d", "%ld", "%%", "%vd"],
    "perl-brace": ["{name}", "{n}"],
    "php": ["%s", "%d", "%1$s", "%2$04d", "%%", "%'x5d"],
    "lua": ["%s", "%d", "%q", "%%", "%5.1f"],
    "ruby": ["%s", "%d", "%{name}", "%<n>d", "%%", "%1$s"],
    "sh": ["$name", "${name}"],
    "smalltalk": ["%1", "%2", "%%", "%<yes|no>3"],
    "object-pascal": ["%s", "%d", "%0:d", "%5.2f", "%%"],
    "ycp": ["%1", "%2", "%%"],
    "qt": ["%1", "%L2", "%n"],
    "qt-plural": ["%n", "%Ln"],
    "kde": ["%1", "%2"],
    "kde-kuit": ["%1", "%2", "<b>", "&amp;"],
    "boost": ["%1%", "%2%", "%|1$s|", "%%", "%s"],
    "gcc-internal": ["%s", "%qs", "%E", "%<", "%>", "%%", "%.*s", "%D", "%qT"],
    "gfc-internal": ["%s", "%d", "%C", "%L", "%%"],
}
ODD = st.text("abé '\"%{}$~&<>0123456789\\|.,!?ds@n", max_size=25)


def test_every_format_has_directives() -> None:
    assert DIRECTIVES.keys() == FORMATS.keys()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "answer", ["", "Le chat", "L'eau 50 % {x} '{' $5 ~a %d %1 %s", "un. deux."]
)
@pytest.mark.parametrize("step", [1, 0, -1])
def test_msgfmt_accepts_messages_of_every_format(tmp_path, name, answer, step) -> None:
    own, flag = DIRECTIVES[name], f"{name}-format"
    texts = ["No dog.", "The dog's {} sees the black cat.", "Dogs {} see 50 cats.\n"]
    parts = [text.replace("{}", one) for one in own for text in texts]
    parts += [f"The dog {a} sees {b} cats." for a in own for b in own if a != b]
    messages = "".join(message(part, flag) for part in dict.fromkeys(parts))
    source = HEADER % "2; plural=n != 1" + messages
    result = translated(source, answer, step, draft=False)
    check(result, tmp_path / "x.po")
    kinds = re.compile(FORMATS[name])
    for entry in polib.pofile(result.decode()) if name != "java" else ():
        assert sorted(kinds.findall(entry.msgid)) == sorted(kinds.findall(entry.msgstr)), entry


@settings(max_examples=60, deadline=None)
@given(answer=ODD, name=st.sampled_from(sorted(FORMATS)), step=st.sampled_from([1, 0, -1]))
def test_msgfmt_accepts_whatever_the_model_writes(tmp_path_factory, answer, name, step) -> None:
    own = [one for one in DIRECTIVES[name] if one not in ("%<", "%>", "<b>", "%*d", "%.*s")]
    text = f"The dog {own[0]} sees\n{own[1]}: the cat ({own[0]}). It's {own[-1]}"
    source = HEADER % "2; plural=n != 1" + message(text, f"{name}-format")
    check(translated(source, answer, step, draft=False), tmp_path_factory.mktemp("po") / "x.po")


MANY = (
    "# first\n"
    + HEADER % "2; plural=n > 1"
    + """#. extracted
#: src/my file.c:10
#, c-format
#| msgid "Old"
msgctxt "door\\\\"
msgid ""
"A long text of %d lines\\n"
"that is wrapped."
msgstr   ""

#~ msgid "gone"
#~ msgstr ""

#
msgid "twice" msgstr "deux fois"
\tmsgid "one \\t dog"
msgid_plural "%d dogs"
msgstr[0] ""
msgstr[1] ""
#, fuzzy
#~ msgid "obsolete"
#~ msgstr "x"

msgid "last\x85\u2028\x0c\x0b" msgstr "" """
)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("charset", ["UTF-8", "ISO-8859-15", "CHARSET", "US-ASCII", "KOI8-R"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_all_bytes_stay_but_those_of_new_translations(end: str, charset: str, mark: str) -> None:
    text = MANY if charset == "UTF-8" else MANY.encode("ascii", "ignore").decode()
    text = text.replace("UTF-8", charset).replace("\n", end)
    own = charset if charset[:1] in "IK" else "utf-8"
    data = mark.encode() + text.encode(own)
    if mark and own != "utf-8":
        return  # only UTF-8 has such a mark
    letter = "é" if charset != "KOI8-R" else "ж"
    wide = translated(data, "日本").removeprefix(mark.encode()).decode()
    assert "charset=UTF-8" in wide and "日本" in wide, "what its encoding lacks"
    result = translated(data, letter)
    assert result.startswith(mark.encode())
    assert (b"charset=UTF-8" in result) == (own == "utf-8"), "what is written is what it says"
    plain = result.decode(own).removeprefix("\ufeff")
    if own == "utf-8":
        plain = plain.replace("charset=UTF-8", f"charset={charset}")
    assert without_translations(plain) == without_translations(text)
    assert plain.count(letter) == 6 and plain.count(", fuzzy") == 4
    assert re.search(r"#, fuzzy, c-format\r?\n#\| msgid \"Old\"", plain), "in the line of flags"
    assert re.search(r"\n\r?\n#, fuzzy\r?\nmsgid \"last", plain), "or in a line of its own"
    assert plain.count("\n") - text.count("\n") == 4, "flags, and the wrapped text ends in a line"


def without_translations(text: str) -> str:
    """A catalogue without msgstr of messages that had none before, and without the flag."""
    text = re.sub(r"#, fuzzy(, |\r?\n(?!#~))", lambda m: "#, " if m[1] == ", " else "", text)
    return re.sub(r'(msgstr(\[\d\])?) *(?!"deux|"\s*"P)("[^"\n]*"\s*)+', r"\1\n", text)


@pytest.mark.parametrize("width", [60, 200])
def test_lines_are_wrapped_where_those_of_the_file_are(width: int) -> None:
    long = " ".join(["dog"] * 40)
    text = HEADER % "1" + message("a") + f'msgid "{"x" * width}"\nmsgstr "x"\n\n'
    result = translated(text, long).decode()
    assert (max(map(len, result.split("\n"))) <= 80) == (width == 60)
    assert polib.pofile(result)[0].msgstr == long


def test_a_catalogue_without_work_is_the_same_bytes() -> None:
    done = MANY.replace('msgstr   ""', 'msgstr "x"').replace('] ""', '] "y"').removesuffix('"" ')
    assert translated(done + '"z"') == (done + '"z"').encode()
    fait = HEADER % "1" + 'msgid "done"\nmsgstr "fait"\n'
    assert polib.pofile(translated(fait, again=True).decode())[0].msgstr == "DONE"


def test_the_format_of_java_quotes_and_unquotes() -> None:
    text = "It''s {0,choice,0#''no''|1#one} of '{' and '}''{'"
    assert "It's " in java_shown(text) and java_written(java_shown(text)) == text


RUSSIAN = "3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2)"


@pytest.mark.parametrize(
    "header", ["1; plural=0", "2; plural=(n != 1)", "2; plural=n > 1", RUSSIAN]
)
@pytest.mark.parametrize("singular", ["One dog", "%d dog"])
def test_msgfmt_accepts_plural_forms(tmp_path: Path, header: str, singular: str) -> None:
    text = HEADER % header + message(singular, "c-format", "%d dogs of %s")
    text = text.replace('msgstr[1] ""\n', "") if header[0] == "1" else text
    if singular == "%d dog":
        text = text.replace(" of %s", "")
    check(translated(text, "chien", draft=False), tmp_path / "x.po")


MARKED = [
    "``code``", "``a`b``", ":role:`x`", ":py:meth:`~a.b`", ":c:func:`f <g>`", "`link`_", "`x`",
    "`text <http://a.org>`__", "|subst|", "[1]_", "[#note]_", "[CIT2002]_", "](https://a.org/b)",
    "&nbsp;", "&#160;", "<b>", "</b>", "**",
]  # fmt: skip


@pytest.mark.parametrize("mark", MARKED)
@pytest.mark.parametrize("answer", ["Le chien dort.", "Un `x` ** :role:`y` dort [1]_ &amp; ici"])
def test_markup_of_documentation_is_kept(mark: str, answer: str) -> None:
    text = f"The {mark} dog sleeps ({mark})." if mark != "**" else "The **dog** sleeps."
    result = polib.pofile(translated(HEADER % 1 + message(text), answer).decode())[0].msgstr
    assert result.count(mark) == text.count(mark) and "chien" in result + "chien" * ("Un" in answer)
