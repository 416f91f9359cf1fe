"""Recognise what files hold: the columns of a table, the languages of a TMX, the files of splits.

They are recognised by their names, else by what they hold; what neither shows may be asked.
"""

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from foveate.config import Tree
from foveate.data.bilingual import languages_of_tmx
from foveate.data.catalogue import DataError, find
from foveate.data.notation import amount_like
from foveate.data.report import are_labels
from foveate.data.text import (
    BILINGUAL,
    CSV,
    JSON,
    BadLine,
    CSVFile,
    decoded_lines,
    ending_of,
    is_table,
    json_records,
    layout_of,
    looks_like_data,
)

SPLITS = {"valid": ("valid", "val", "dev", "validation"), "test": ("test", "t10k")}
SAMPLE = 2000  # lines that tell the columns
LABELS = r"label|category|class|intent|topic|sentiment|tag|genre|stars|rating"
NAMES = f"{LABELS}|text|sentence|review|comment|source|src|target|tgt|id|idx|index"
LANGUAGES = "en|fr|de|es|it|pt|nl|ru|uk|pl|cs|sk|sv|da|nb|ro|hu|fi|el|tr|zh|ja|ko|ar|hi"
NAMES += f"|{LANGUAGES}|english|french|german|spanish|translation"
PAIRS = (r"source|src|input|question|en(glish)?", r"target|tgt|trg|output|translation|answer")


def layout_for(file: Path, task: str, settings: Tree) -> tuple[dict[str, object], bool]:
    """Return fields of [data] for the layout of a file, if not the default; is it labelled?

    ``settings`` are what the user names. Raises `DataError` for a table under another ending.
    """
    ending = ending_of(file)
    if ending in BILINGUAL:
        return _languages(file, settings) if ending == ".tmx" else {}, False
    if "format" in settings:
        return {}, settings["format"] == "fasttext"
    if layout := layout_of(file):
        return layout, layout["format"] == "fasttext"
    if is_table(file):  # ours, or of a user's reader
        ours = ending in (".tsv", CSV, *JSON)
        return _columns(file, task, settings) if ours else ({}, False)
    lines = [line for line, _ in islice(decoded_lines(file), SAMPLE) if line.strip()]
    tabs = {line.count("\t") for line in lines[:20]}
    if len(lines) > 1 and len(tabs) == 1 and tabs != {0}:
        raise DataError(f"{file} holds {tabs.pop() + 1} columns between tabs: name it .tsv")
    return {}, False


def _languages(file: Path, settings: Tree) -> dict[str, object]:
    """The languages of a TMX that has two, that of its header first."""
    known = languages_of_tmx(file)
    return {"languages": known} if "languages" not in settings and len(known) == 2 else {}


def _table(file: Path, settings: Tree) -> tuple[list[list[str]], bool]:
    """The first rows of a table, and whether the first names the columns, as keys of JSON do.

    Raises `DataError` where none has more than one cell, and as many as the first.
    """
    bad: list[BadLine] = []
    if named := ending_of(file) not in (".tsv", ".csv"):
        records = [record for _, record in islice(json_records(file), SAMPLE)]
        bad = [record for record in records if isinstance(record, BadLine)]
        objects = [record for record in records if isinstance(record, dict)]
        keys = dict.fromkeys(
            key for each in objects for key, value in each.items() if isinstance(value, str | bool)
        )
        table = [[*keys], *([str(each.get(key, "")) for key in keys] for each in objects)]
    elif ending_of(file) == ".tsv":
        lines = list(islice(decoded_lines(file), SAMPLE))
        bad = [BadLine(str(file), n, why) for n, (_, why) in enumerate(lines, start=1) if why]
        table = [line.split("\t") for line, why in lines if line and not why]
    else:
        rows = [row for _, _, row in islice(CSVFile(file, settings.get("delimiter")), SAMPLE)]
        bad = [row for row in rows if isinstance(row, BadLine)]
        table = [row for row in rows if isinstance(row, list) and row]
    whole = [row for row in table if table[0] and len(row) == len(table[0])]
    if len(whole) < 2:
        short = f"{file} has no rows, or only the names of columns" if len(table) < 2 else ""
        short = short or f"{file}: no row has as many cells as the first"
        reason = str(bad[0]) if bad else short
        single = any(cell.startswith("'") for row in table[1:2] for cell in row)
        raise DataError(reason + "; quote cells with \", not with '" * single)
    return whole, named


def _columns(file: Path, task: str, settings: Tree) -> tuple[dict[str, object], bool]:
    """The columns of text and label, or of both sides, by their names, else by what they hold."""
    table, keys = _table(file, settings)
    tabs, width = ending_of(file) == ".tsv", len(table[0])
    if width < 2 or "columns" in settings or "keys" in settings:
        return {}, False
    header = table[0]
    if keys and task != "classification" and {"source", "target"} <= {*header}:
        return {}, False
    again = any(row[i] == cell for row in table[1:] for i, cell in enumerate(header) if cell)
    if tabs and not again and all(re.fullmatch(NAMES, cell, re.I) for cell in header):
        raise DataError(
            f"{file}:1: {', '.join(header)}: this is a row of column names, and a .tsv has none: "
            "delete the line, or rename the file to .csv"
        )
    named = keys or not (tabs or again or looks_like_data(header))
    named = bool(settings.get("header", named))
    columns = list(zip(*table[named:], strict=True))
    if task == "auto" and not keys and all(all(map(amount_like, column)) for column in columns):
        raise DataError(f"{file} contains only numbers, without a column of dates: name a task")

    def of(names: str) -> int | None:
        return next((i for i in titled if re.fullmatch(names, header[i], re.I)), None)

    titled = range(width) if named else range(0)
    labels = task in ("auto", "classification")
    first, second, label = of(PAIRS[0]), of(PAIRS[1]), of(LABELS) if labels else None
    languages = [i for i in titled if re.fullmatch(LANGUAGES, header[i], re.I)]
    if label is None and len(languages) == 2:  # as "en" and "fr" of Hugging Face's data
        first, second = languages
    if label is not None or first is None or second is None:
        several = [i for i in range(width) if len({*columns[i]} - {""}) > 1]  # different texts
        short = [i for i in several if labels and are_labels(columns[i])]
        few = min(short, key=lambda i: (len(set(columns[i])), i), default=None)
        second = label if label is not None else 1 if few is None else few
        if label is None and few is None and width > 2 and not tabs:
            raise DataError(
                f"{file} has the columns {', '.join(header)}; none is recognised as a label, "
                f"and none has dates beside numbers: name a task, and set "
                + ('data.keys=["text","label"]' if keys else "data.columns=[1,2]")
            )
        label = few if label is None else label
        rest = [i for i in range(width) if i != second]
        longest = max(rest, key=lambda i: sum(map(len, columns[i])))
        first = longest if second == label else rest[0]
    if keys:
        return {"keys": [header[first], header[second]]}, second == label
    layout: dict[str, object] = {} if named or tabs else {"header": False}
    if (first, second) != (0, 1):
        layout["columns"] = [header[i] if named else i + 1 for i in (first, second)]
    return layout, second == label


def patterns_of(files: Sequence[Path]) -> tuple[list[str], dict[str, str]]:
    """Return the names with {split} where valid and test lie beside train, and their names."""
    plain = [file.as_posix() for file in files]
    if not all("train" in file.name for file in files):
        return plain, {}
    patterns = [f.with_name(f.name.replace("train", "{split}", 1)).as_posix() for f in files]
    splits = {}
    for split, names in SPLITS.items():
        for name in names:
            try:
                for pattern in patterns:
                    find(pattern.replace("{split}", name), folders=True)
            except DataError:
                continue
            splits[split] = name
            break
    return (patterns, splits) if splits else (plain, {})
