"""``foveate new`` on real data: the guess, a config that trains, and refusals."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from foveate.cli import app
from foveate.config import ConfigError, read
from foveate.run import RunConfig
from foveate.run.training import train
from foveate.train.checkpoint import steps
from small_runs import invoked

TINY = ("train.max_steps=2", "train.schedule.warmup_steps=0")
TINY += ("train.save.every=2", "train.validation.every=none")
PAIRS = (*TINY, "train.batch_tokens=256")


@pytest.mark.parametrize(
    ("names", "task"),
    [
        ("multi30k/val.en multi30k/val.fr", "translation"),
        ("inflection-german/german-dev.tsv", "transduction"),
        ("sst2/train.tsv", "classification"),
        ("tiny-shakespeare/input.txt", "language"),
        ("time-series/airline-passengers.csv", "forecasting"),
        ("flickr8k-1000/images.tar flickr8k-1000/captions.tsv", "captioning"),
        ("mnist/train-images-idx3-ubyte mnist/train-labels-idx1-ubyte", "vision"),
    ],
)
def test_the_guessed_config_trains(names, task, tmp_path, data_folder, monkeypatch) -> None:
    monkeypatch.setenv("FOVEATE_DATA", str(data_folder))
    files = [str(data_folder / name) for name in names.split()]
    monkeypatch.chdir(tmp_path)
    result = invoked("new", "auto", *files, "--out", "c.toml")
    assert f"c.toml: {task};" in result.stdout
    assert "foveate train c.toml --run runs/c" in result.stdout
    if task not in ("captioning", "vision"):  # whole albums take long to read
        train("c.toml", PAIRS, "runs/c")
        assert steps(Path("runs/c")) == [2]
        _, _, use = result.stdout.rpartition("foveate ")
        arguments = shlex.split(use) + (["--max-length", "5"] if task == "language" else [])
        invoked(*arguments, text="Hahn<N><GEN><SG>\n")


INTENTS = {
    "where is my card": "card_arrival",
    "why was I charged twice": "balance_not_updated_after_cheque_or_cash_deposit",
    "how do I top up, please": "topping_up_by_card",
    "my pin is blocked": "pin",
}


def table(head: str, row: str, rows: int = 80) -> str:
    lines = [head] if head else []
    for i in range(rows):
        text, label = [*INTENTS.items()][i % 4]
        day = f"2024-{i // 28 + 1:02}-{i % 28 + 1:02}"
        lines.append(row.format(text=f'"{text} {i}"', label=label, i=i, day=day))
    return "\n".join([*lines, ""])


UNIT = '<tuv xml:lang="en"><seg>house {0}</seg></tuv><tuv xml:lang="fr"><seg>maison {0}</seg></tuv>'
UNITS = "".join(f"<tu>{UNIT.format(i)}</tu>" for i in range(30))
TMX = f'<tmx version="1.4"><header srclang="en"/><body>{UNITS}</body></tmx>'


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("train.csv", table("category,text", "{label},{text}"), ['columns = ["text", "category"]']),
        ("train.csv", table("class,title,description", "{label},t{i},{text}"),
         ['["description", "class"]']),
        ("train.csv", table("", "{text},{label}"), ["header = false", 'kind = "classifier"']),
        ("train.csv", table("text,label", "{text},{label}"),
         ["holdout = 0.1  # share of valid\n", "{{split}}.csv"]),
        ("sales.csv", table("date,shop", "{day},{i}").replace("-", "/"),
         ['date_format = "%Y/%m/%d"']),
        ("sales.csv", table("shop,when", "{i},{day}"), ['date = "when"', "linear_forecaster"]),
        ("b.tsv", table("", "{label}\t{text}").replace('"', ""), ["columns = [2, 1]"]),
        ("m.tmx", TMX, ['source = "{out}/m.tmx"', 'languages = ["en", "fr"]', '"translation"']),
    ],
)  # fmt: skip
def test_columns_and_formats_are_told_apart(name, content, expected, tmp_path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "test.csv").write_text(content, encoding="utf-8")
    out = tmp_path / "c.toml"
    invoked("new", "auto", tmp_path / name, "train.threads=1", "--out", out)
    text = out.read_text()
    assert "\nthreads = 1\n" in text
    for part in expected:
        assert part.replace("{out}", str(tmp_path)).replace("{{", "{").replace("}}", "}") in text
    train(out, [*TINY[:2], "train.save.every=1", "train.validation.every=1"], tmp_path / "run")


ROWS = [f"the dog number {n} sleeps" for n in range(40)]
EXPORTS = {  # as public data sets are written, and what new reads of them
    "own keys.jsonl": (
        '{"a": "x y", "b": "z w v"}\n{"a": "y", "b": "w v"}\n' * 20, "keys = ['b', 'a']",
    ),
    "Kaggle, cells without text.csv": (
        "v1,v2,,,\n" + "".join(f'{"ab"[n % 2]},"{row}, ok",,,\n' for n, row in enumerate(ROWS)),
        "columns = ['v2', 'v1']",
    ),
    "one value in a column.csv": (
        "".join(f"{n % 2},NO_QUERY,{row}\n" for n, row in enumerate(ROWS)),
        "columns = [3, 1]",
    ),
    "pairs of Hugging Face.jsonl": (
        "".join(f'{{"id": "{n}", "translation": {{"en": "{row}", "fr": "le chien {n} dort"}}}}\n'
        for n, row in enumerate(ROWS)),
        "keys = ['en', 'fr']",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTS)
def test_exports_of_public_data_are_read_by_what_they_hold(name: str, tmp_path: Path) -> None:
    content, expected = EXPORTS[name]
    (tmp_path / name).write_text(content)
    config = tmp_path / "c.toml"
    result = invoked("new", "auto", tmp_path / name, "--out", config)
    assert expected in config.read_text().replace('"', "'")
    assert "40 lines" in result.output and "odd: empty" not in result.output


def test_masked_text_trains(tmp_path: Path, data_folder: Path) -> None:
    out = tmp_path / "c.toml"
    file = str(data_folder / "sst2" / "train.tsv.gz")
    invoked("new", "masked", file, "--out", out)
    train(out, PAIRS, tmp_path / "run")
    assert steps(tmp_path / "run") == [2]


def test_text_without_a_file_that_validates_is_divided(tmp_path: Path) -> None:
    lines = "".join(f"a line of the text, number {i}\n" for i in range(200))
    for split in ("train", "test"):
        (tmp_path / f"{split}.txt").write_text(lines, encoding="utf-8")
    out = tmp_path / "c.toml"
    result = invoked("new", "language", tmp_path / "train.txt", "--out", out)
    assert "no valid file" in result.output and "{split}" not in out.read_text()
    train(out, [*TINY[:2], "train.save.every=1", "train.validation.every=1"], tmp_path / "run")


SENTENCES, PAIRED = "one\n" * 39, "".join(f"text {i}\ttexte {i}\n" for i in range(40))
LABELLED = "".join(f"text {i}\t{i % 2}\n" for i in range(40))
REFUSED = [  # the task, the content of files, and what is said
    ("auto", {"a.txt": "one\ntwo\n"}, "at least 20 are needed"),
    ("language", {"a.txt": None}, "no file"),
    ("vision", {"a.txt": "one\ntwo\n"}, "pictures need"),
    ("auto", {"a.txt": SENTENCES, "b.txt": "eins\n" * 40}, "has no counterpart"),
    ("auto", {"a.xlsx": "one\teins\n" * 40}, "is an Excel file: export its sheet as .csv"),
    ("auto", {"a.txt": "one\teins\n" * 40}, "2 columns between tabs: name it .tsv"),
    ("auto", {"a.txt": "<html>\n"}, "is XML or HTML"),
    ("auto", {"c.tsv": "en\tfr\n" + PAIRED}, "c.tsv:1: en, fr: this is a row of column names"),
    ("auto", {"c.tsv": "sentence\tlabel\n" + LABELLED},
     "c.tsv:1: sentence, label: this is a row of column names"),
    ("auto", {"c.csv": "a,b\n" + "1,2.5\n" * 40}, "only numbers, without a column of dates"),
    ("auto", {"c.csv": "a,b,c\n" + "x y,z w,v u\n" * 3}, "has the columns a, b, c"),
    ("auto", {"c.csv": table("a,b,c", "{i},{text},y {i}")}, "name a task, and set data.columns"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "files", "message"), REFUSED)
def test_mistakes_are_refused(task, files, message, tmp_path: Path) -> None:
    for name, content in files.items():
        if content is not None:
            (tmp_path / name).write_text(content)
    paths = [str(tmp_path / name) for name in files]
    command = ["new", task, *paths, "--out", str(tmp_path / "c.toml")]
    assert message in str(CliRunner().invoke(app, command).exception)
    assert not (tmp_path / "c.toml").exists()


def test_a_config_that_is_there_and_a_file_that_is_named_twice_are_refused(tmp_path: Path) -> None:
    text, out, sheet = tmp_path / "a.txt", tmp_path / "c.toml", tmp_path / "c.csv"
    text.write_text(SENTENCES)
    sheet.write_text("text,text\n" + "x y,z w v\n" * 40)

    def refusal(*arguments: Path | str) -> str:
        words = ["new", "auto", *map(str, arguments), "--out", str(out)]
        return str(CliRunner().invoke(app, words).exception)

    assert "is named twice" in refusal(text, text)
    assert "the header has 'text' twice" in refusal(sheet, 'data.columns=["text",2]')
    out.write_text("mine")
    assert "--force" in refusal(text) and out.read_text() == "mine"


SERIES = "month,n\n" + "".join(f"{2000 + n // 12}-{n % 12 + 1:02d},{n % 12}\n" for n in range(120))


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("objective=quantile", "objective.kind", "quantile"),  # a kind for a table
        ('objective={kind="quantile"}', "objective.kind", "quantile"),
        ("objective.kind=quantile", "objective.kind", "quantile"),
        ("train.optimizer=sgd", "train.optimizer.kind", "sgd"),  # without AdamW's fields
        ("train.max_minutes=none", "train.max_minutes", None),  # a word
        ("seed=3", "seed", 3),
        ("train.optimizer.lr=1e-4", "train.optimizer.lr", 1e-4),
        ("train.compile=true", "train.compile", True),
        ("task.series.shares=[0.8, 0.1, 0.1]", "task.series.shares", (0.8, 0.1, 0.1)),
        ('data.splits={"a b"="c\\"d"}', "data.splits", {"a b": 'c"d'}),  # keys and values in quotes
        ("start.run=runs/a", "start.run", "runs/a"),  # a table that was not there
    ],
)
def test_an_override_of_any_type_is_written(override, path, value, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.csv").write_text(SERIES)
    invoked("new", "forecasting", "s.csv", override)
    written: Any = read(RunConfig, "config.toml")
    for name in path.split("."):
        written = getattr(written, name)
    assert written == value


def test_the_warmup_fits_the_steps(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.tsv").write_text("".join(f"where is it {n}\toù est-ce {n}\n" for n in range(40)))
    invoked("new", "translation", "p.tsv", "train.max_steps=12")
    assert read(RunConfig, "config.toml").train.schedule.tree()["warmup_steps"] == 2
    assert train("config.toml", ["train.validation.every=none"], "run").checkpoint
    invoked("new", "translation", "p.tsv", "--force")
    with pytest.raises(ConfigError, match=r"of 12 steps; write train.schedule.warmup_steps=2"):
        train("config.toml", ["train.max_steps=12"], "other")
