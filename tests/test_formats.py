"""Every format that users have, with every verb that reads training data: it works, or is refused
in a sentence that names it; whatever the files hold, nothing ends in a traceback.
"""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import polib
import pytest
from typer.testing import CliRunner

from foveate.cli import app
from foveate.data.report import report_files
from foveate.data.text import BILINGUAL, READERS, Reading, TextData, read_pairs
from foveate.errors import FOR_THE_USER
from foveate.run.training import train
from foveate.tasks.draft import TASKS, planned
from foveate.train.checkpoint import steps

ONE_STEP = (
    *("train.max_steps=1", "train.schedule.warmup_steps=0", "train.threads=1"),
    *("train.save.every=1", "train.validation.every=none", "train.batch_tokens=256"),
)
PAIRS = [(f"the house {n}", f"la maison {n}") for n in range(40)]
LABELLED = [(f"the house is fine {n}", ("good", "bad")[n % 2]) for n in range(40)]


def po(pairs: list[tuple[str, str]]) -> str:
    head = 'msgid ""\nmsgstr ""\n"Plural-Forms: nplurals=2; plural=n > 1;\\n"\n\n'
    return head + "\n".join(f'msgid "{s}"\nmsgstr "{t}"\n' for s, t in pairs)


def tmx(pairs: list[tuple[str, str]], *more: str) -> str:
    sides = "".join(
        '<tu><tuv xml:lang="en-US"><seg>{}</seg></tuv><tuv xml:lang="fr"><seg>{}</seg></tuv>{}</tu>'
        .format(s, t, "".join(f'<tuv xml:lang="{m}"><seg>x</seg></tuv>' for m in more))
        for s, t in pairs
    )  # fmt: skip
    return f'<tmx version="1.4"><header srclang="en"/><body>{sides}</body></tmx>'


def xliff(pairs: list[tuple[str, str]], version: str = "1.2") -> str:
    unit = "<trans-unit id='{}'><source>{}</source><target>{}</target></trans-unit>"
    file = "<file><body>{}</body></file>"
    if version == "2.0":
        unit = "<unit id='{}'><segment><source>{}</source><target>{}</target></segment></unit>"
        file = "<file>{}</file>"
    units = file.format("".join(unit.format(n, *pair) for n, pair in enumerate(pairs)))
    name = f"version='{version}' xmlns='urn:oasis:names:tc:xliff:document:{version}'"
    return f"<xliff {name} srcLang='en'>{units}</xliff>"


def records(rows: list[tuple[str, str]], *keys: str) -> list[dict[str, str]]:
    return [dict(zip(keys, row, strict=True)) for row in rows]


def lines(rows: list[tuple[str, str]], form: str) -> str:
    return "".join(form.format(*row) + "\n" for row in rows)


# file: its content, and the task that is guessed from it
READ: dict[str, tuple[str, str]] = {
    "a.txt": ("it is what it is, and what it was\n" * 80, "language"),
    "pairs.tsv": (lines(PAIRS, "{}\t{}"), "translation"),
    "pairs.csv": ("en,fr\n" + lines(PAIRS, "{},{}"), "translation"),
    "labels.tsv": (lines(LABELLED, "{}\t{}"), "classification"),
    "labels.csv": ("sep=;\ntext;label\n" + lines(LABELLED, "{};{}"), "classification"),
    "pairs.jsonl": ("\n".join(map(json.dumps, records(PAIRS, "en", "fr"))), "translation"),
    "array.json": (json.dumps(records(PAIRS, "source", "target"), indent=1), "translation"),
    "labels.ndjson": (
        "\n".join(json.dumps({"text": t, "label": s == "good"}) for t, s in LABELLED),
        "classification",
    ),
    "fasttext.txt": (lines(LABELLED, "__label__{1} {0}"), "classification"),
    "fr.po": (po(PAIRS), "translation"),
    "m.tmx": (tmx(PAIRS), "translation"),
    "m.xlf": (xliff(PAIRS), "translation"),
    "m.xliff": (xliff(PAIRS, "2.0"), "translation"),
    "data.json": (json.dumps({"data": [{"en": a, "fr": b} for a, b in PAIRS]}), "translation"),
    "rows.json": (
        json.dumps({"v": 1, "rows": [{"t": a, "l": b} for a, b in LABELLED]}, indent=1),
        "classification",
    ),
    "s.csv": (
        "date;a\n" + "".join(f"2020-0{1 + n // 28}-{1 + n % 28:02};{n},5\n" for n in range(80)),
        "forecasting",
    ),
}  # fmt: skip
REFUSED: dict[str, tuple[bytes, str]] = {  # and what is said
    "a.srt": (b"1\n00:00:01,000 --> 00:00:02,000\nOne\n", "an SRT file"),
    "subtitles.txt": (b"1\n00:00:01,000 --> 00:00:02,000\nOne\n", "subtitles"),
    "a.vtt": (b"WEBVTT\n\n00:01.000 --> 00:02.000\nOne\n", "subtitles"),
    "a.ass": (b"[Script Info]\n", "subtitles"),
    "script.txt": (b"[Script Info]\nTitle: x\n", "subtitles"),
    "a.conll": (b"One CD O\n", r"token lines \(CoNLL\)"),
    "entities.txt": (b"-DOCSTART- -X- O\n\nEU NNP B-ORG\nis VBZ O\n", "token lines"),
    "tags.txt": (b"EU NNP B-ORG\nis VBZ O\n\n" * 30, "token lines"),
    "trees.txt": (b"# text = EU is\n1\tEU" + b"\t_" * 8 + b"\n2\tis" + b"\t_" * 8 + b"\n", "token"),
    "a.html": (b"<p>One</p>\n" * 30, "an HTML file"),
    "page.txt": (b"<!DOCTYPE html><p>One</p>\n" * 30, "XML or HTML"),
    "a.docx": (b"PK\x03\x04" + bytes(30), "a DOCX file"),
    "a.odt": (b"PK\x03\x04" + bytes(30), "an ODT file"),
    "a.xlsx": (b"PK\x03\x04" + bytes(30), "an Excel file"),
    "a.pot": (po([("one", "")]).encode(), "a template of PO files"),
    "a.bin": (b"PK\x03\x04" + bytes(30), "an archive or an office document"),
    "a.pdf": (b"%PDF-1.4\n" * 30, "a PDF file"),
    "a.parquet": (b"PAR1" + bytes(30), "a Parquet file"),
    "packed.txt": (gzip.compress(b"one\n"), "a gzip file"),
    "catalogue.txt": (po(PAIRS).encode(), "a PO catalogue: name it .po"),
    "objects.txt": (b'{"text": "a"}\n' * 30, "JSON objects: name it .jsonl"),
    "array.txt": (b'[\n {"text": "a"},\n', "a JSON array: name it .json"),
    "moses.txt": (lines(PAIRS, "{} ||| {}").encode(), r"both sides between \|\|\|"),
    "wide.txt": (("one\ntwo\n" * 30).encode("utf-16-le"), "UTF-16LE"),
    "mac.txt": (b"one\rtwo\r" * 30, "CR line ends"),
    "mac.csv": (b"text,label\rone,a\r" * 30, "CR line ends"),
    "three.tmx": (tmx(PAIRS, "de").encode(), 'en, fr, de: name those .*languages = ."en", "fr".'),
}  # fmt: skip


BY_CONTENT = (
    *("objects.txt", "array.txt", "catalogue.txt", "moses.txt", "subtitles.txt"),
    *("script.txt", "entities.txt", "tags.txt", "trees.txt"),
)


def written(folder: Path, name: str) -> Path:
    (folder / name).write_bytes(READ[name][0].encode() if name in READ else REFUSED[name][0])
    return folder / name


def said(*arguments: object) -> str:
    """What the command prints, or its error, which must be one for the user."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exception is None or result.exit_code == 0:
        return result.output
    assert isinstance(result.exception, Exception) and isinstance(result.exception, FOR_THE_USER), (
        arguments
    )
    return f"error: {result.exception}"


@pytest.mark.parametrize("name", READ)
def test_what_is_read_is_reported_and_trained_on(name: str, tmp_path: Path) -> None:
    file, config = written(tmp_path, name), tmp_path / "c.toml"
    assert f"c.toml: {READ[name][1]};" in said("new", "auto", file, "--out", config)
    assert not said("data", "report", file).startswith("error")
    train(config, ONE_STEP, tmp_path / "run")
    assert steps(tmp_path / "run") == [1]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_named(name: str, tmp_path: Path) -> None:
    file, config = written(tmp_path, name), tmp_path / "c.toml"
    for output in (said("new", "auto", file, "--out", config), said("data", "report", file)):
        assert output.startswith("error") and re.search(REFUSED[name][1], output), output
    if name in BY_CONTENT:
        return  # a config of the user's own may call it a text
    tasks = {"language": ("text", "gpt-tiny"), "classification": ("source", "classifier")}
    for task, (key, model) in tasks.items():
        text = f'[task]\nkind = "{task}"\n{key} = "{file}"\n[model]\nkind = "{model}"\n'
        config.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError) as caught:
            overrides = ["data.holdout=0.1", "train.schedule=constant", *ONE_STEP[:1]]
            train(config, overrides, tmp_path / "run")
        assert re.search(f"{REFUSED[name][1]}|{name} is not a text", str(caught.value))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", READ)
def test_every_task_reads_a_format_or_says_why_not(name: str, task: str, tmp_path: Path) -> None:
    output = said("new", task, written(tmp_path, name), "--out", tmp_path / "c.toml")
    assert f"c.toml: {task};" in output or re.search(rf"error: .*{name}|{task} |pictures", output)


BOTH_SIDES = {"po": po, "tmx": tmx, "xliff": xliff}


@pytest.mark.parametrize("ending", BOTH_SIDES)
def test_several_files_and_folders_are_one_corpus(ending: str, tmp_path: Path) -> None:
    make = BOTH_SIDES[ending]
    (tmp_path / "d" / "e").mkdir(parents=True)
    files = [tmp_path / "d" / f"a.{ending}", tmp_path / "d" / "e" / f"b.{ending}"]
    for n, file in enumerate(files):
        file.write_text(make([(f"house {n} {i}", f"maison {n} {i}") for i in range(15)]))
    for named in (files, [tmp_path / "d"]):
        config = tmp_path / f"{len(named)}.toml"
        assert "translation; 30 lines" in said("new", "auto", *named, "--out", config)
        assert "train: 30 pairs" in said("data", "report", *named)
        train(config, ONE_STEP, tmp_path / f"run{len(named)}")
    for swap, first in ((False, "house 0 0"), (True, "maison 0 0")):
        reading = Reading(files[0], None, "train", TextData(swap_sides=swap))
        assert next(iter(reading))[1] == first
    (tmp_path / "empty").mkdir()
    assert "without a file that ends in .po" in said("data", "report", tmp_path / "empty")


def test_folders_of_valid_and_test_beside_train_are_used(tmp_path: Path) -> None:
    for split, count in (("train", 30), ("valid", 5), ("test", 4)):
        (tmp_path / split / "of one program").mkdir(parents=True)
        file = tmp_path / split / "of one program" / "id.po"
        file.write_text(po([(f"house {split} {n}", f"rumah {split} {n}") for n in range(count)]))
    config = tmp_path / "c.toml"
    output = said("new", "auto", tmp_path / "train", "--out", config)
    assert "train, valid and test are used" in output
    train(config, ONE_STEP, tmp_path / "run")
    assert "4 examples" in said("evaluate", tmp_path / "run", "--no-baseline")


def test_only_finished_translations_of_a_catalogue_are_read(data_folder: Path) -> None:
    file = data_folder / "python-docs-en-fr" / "sample.po"
    corpus, catalogue = read_pairs(file, None, TextData()), polib.pofile(str(file))
    assert len(corpus) == len(catalogue.translated_entries())
    assert corpus.dropped == {
        "fuzzy": len(catalogue.fuzzy_entries()),
        "untranslated": len(catalogue.untranslated_entries()),
        "obsolete": len(catalogue.obsolete_entries()),
    }
    entries = {" ".join(entry.msgid.split()): entry for entry in catalogue}
    for line, source, target in zip(corpus.lines, corpus.sources, corpus.targets, strict=True):
        assert target == " ".join(entries[source].msgstr.split())
        assert file.read_text().split("\n")[line - 1].startswith("msgid")


RUSSIAN = (
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : "
    "n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2)"
)
PLURALS = {  # the rule: what belongs to "a file" and "%d files"
    "nplurals=2; plural=(n != 1);": ("0", "1"),
    "nplurals=1; plural=0;": (None, "0"),
    RUSSIAN: ("0", "2"),
    "nplurals=2; plural=(n ? ( : ;": ("0", "1"),
    "nplurals=2; plural=n/0;": ("0", "1"),
}


@pytest.mark.parametrize("rule", PLURALS)
def test_plural_forms_are_paired_by_the_rule_of_the_header(rule: str, tmp_path: Path) -> None:
    forms = "".join(f'msgstr[{n}] "{n}"\n' for n in range(3))
    text = f'msgid ""\nmsgstr "Plural-Forms: {rule}\\n"\n\nmsgid "a"\nmsgid_plural "b"\n{forms}'
    (tmp_path / "a.po").write_text(text)
    corpus = read_pairs(tmp_path / "a.po", None, TextData())
    pairs = dict(zip(corpus.sources, corpus.targets, strict=True))
    assert (pairs.get("a"), pairs.get("b")) == PLURALS[rule]


def test_codes_and_drafts_are_left_out_and_languages_chosen(tmp_path: Path) -> None:
    file = tmp_path / "m.tmx"
    file.write_text(tmx([("a <bpt i='1'>&lt;b></bpt>dog<ept i='1'/>", "un <hi>chien</hi>")], "de"))
    corpus = read_pairs(file, None, TextData(languages=("fr", "en")))
    assert (corpus.sources, corpus.targets) == (["un chien"], ["a dog"])
    assert read_pairs(file, None, TextData(languages=("fr", "it"))).dropped == {"untranslated": 1}
    (tmp_path / "m.xlf").write_text(
        xliff([("a", "b"), ("c", "")]).replace("<target>b", "<target state='needs-translation'>b")
    )
    dropped = {"state needs-translation": 1, "untranslated": 1}
    assert read_pairs(tmp_path / "m.xlf", None, TextData()).dropped == dropped


BIG = "9" * 5000
ODD: dict[str, bytes] = {
    **{f"cut {name}": READ[name][0].encode()[:-20] for name in READ},
    "empty": b"",
    "blank": b"\n\n \n",
    "mark": b"\xef\xbb\xbf",
    "zeros": bytes(3000),
    "long cell": b'a,b\n"' + b"x" * 200_000 + b'",y\n' + b"c,d\n" * 30,
    "long line": b"x " * 100_000,
    "quote": b'a,b\n"c,d\n' * 30,
    "quotes": b'"a"b","c"d"\n' * 30,
    "single quotes": b"text,label\n" + b"'a, b',c\n" * 30,
    "CR inside": b"a,b\nc\rd,e\n" * 30,
    "not UTF-8": b"a\xff\tb\xfe\n" * 30,
    "UTF-16": "a\tb\n".encode("utf-16") * 30,
    "line separators": "a\u2028b\x85c\x0bd\x0ce\tf\n".encode() * 30,
    "sep alone": b"sep=;",
    "sep odd": b'"sep=^"\n' + b"a^b\n" * 30,
    "deep arrays": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "big number": f'{{"source": {BIG}, "target": {BIG}}}\n'.encode() * 30,
    "NaN": b'{"source": NaN, "target": 1e999}\n' * 30,
    "scalars": b'1\n"a"\nnull\ntrue\n[]\n{}\n' * 9,
    "array of scalars": b'[1, "a", null, true, [], {}]',
    "twice": b'{"source": "a", "source": "b", "target": "c"}\n' * 30,
    "surrogate": b'{"source": "\\ud800", "target": "c"}\n' * 30,
    "deep XML": b"<tmx>" + b"<tu>" * 100_000,
    "bomb": b'<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><tmx><tu>&b;</tu></tmx>',
    "codes": b'<?xml version="1.0" encoding="klingon"?><tmx/>',
    "PO without key": b'"a"\nmsgstr "b"\n',
    "PO plurals": b'msgid "a"\nmsgid_plural "b"\nmsgstr[9] "c"\n' * 30,
    "dates": b"date,a\n9999-12-31 24:00,1\n0000-01-01,2\n",
    "huge numbers": f"date,a\n2020-01-01,{BIG}\n2020-01-02,1e{BIG}\n".encode(),
    "ages": f"time,a\n{BIG[:13]},1\n{BIG[:13]},2\n".encode(),
    "gzip": gzip.compress(b"a\tb\n" * 30),
    "damaged gzip": gzip.compress(b"a\tb\n" * 30_000)[:60],
}  # fmt: skip
ENDINGS = [*READERS, *BILINGUAL, ".txt", ".dict", ".tsv.gz", ".tmx.gz"]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", ODD)
def test_odd_files_are_read_or_refused_by_name(name: str, ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"odd{ending}"
    file.write_bytes(ODD[name])
    acts: list[Callable[[], object]] = [
        lambda: report_files([file], TextData()),
        lambda: planned("auto", [file], 1.0, {}),
        lambda: planned("forecasting", [file], 1.0, {}),
    ]
    for act in acts:
        try:
            act()
        except Exception as error:
            assert isinstance(error, FOR_THE_USER), repr(error)
            assert "odd" in str(error)
