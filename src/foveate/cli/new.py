"""Writing a config for the user's own files."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from foveate.cli.options import DataKind, TaskName
from foveate.config import parse_tree
from foveate.data.catalogue import DataError, find
from foveate.data.corpus import read_text
from foveate.data.report import DataReport, report_files
from foveate.data.text import FEATURES, TextData
from foveate.files import replace_file
from foveate.kinds import load_kinds
from foveate.run import RunConfig


class TaskDefaults(NamedTuple):
    """The verb that uses a run of a task, the kind of its data, and how it trains."""

    verb: str
    data: DataKind | None
    best: str = "accuracy"  # the figure of the best checkpoint
    batch_tokens: int = 1024
    rate: str = "2e-3"
    warmup: int = 50
    every: int = 200  # steps between checkpoints


TRANSLATE = 'echo "…" | foveate translate {run}'
TASKS = {
    "translation": TaskDefaults(TRANSLATE, "pairs", "bleu", 3072, warmup=400),
    "transduction": TaskDefaults(TRANSLATE, "pairs", "exact_match", warmup=400),
    "classification": TaskDefaults('echo "…" | foveate classify {run}', "labelled", rate="5e-4"),
    "language": TaskDefaults(
        'foveate generate {run} --prompt "…"', "text", "loss", 4096, warmup=100
    ),
    "masked": TaskDefaults("foveate evaluate {run}", "text", "loss", 2048),
    "forecasting": TaskDefaults("foveate forecast {run}", "series", "mse", rate="5e-3", every=50),
    "captioning": TaskDefaults("foveate caption {run} PICTURE", None, "bleu", rate="1e-3"),
    "vision": TaskDefaults("foveate classify {run} PICTURE", None, batch_tokens=128, warmup=200),
}
SPLITS = {"valid": ("valid", "val", "dev", "validation"), "test": ("test", "t10k")}
SEASONS = {"1 hour": 24, "1 day": 7, "1 week": 52, "1 month": 12, "15 minutes": 96}
toml_value = partial(json.dumps, ensure_ascii=False)
LEAST = 20  # pairs, texts or rows from which a config is written


@dataclass
class ConfigPlan:
    """The tables of a config as TOML lines, and the reason of each choice."""

    task: str
    facts: str
    tables: dict[str, list[str]] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def put(self, table: str, *lines: str, why: str = "") -> None:
        """Add lines to a table; ``why`` is printed."""
        self.tables.setdefault(table, []).extend(lines)
        if why:
            self.reasons.append(why)

    def text(self) -> str:
        """The document."""
        tables = (f"[{name}]\n" + "\n".join(lines) for name, lines in self.tables.items())
        head = f"# {self.task}: {self.facts}.\n# Written by foveate new; foveate kinds FIELD"
        return f"{head} explains each field.\nseed = 1\n\n" + "\n\n".join(tables) + "\n"


def write_config(
    task: TaskName, files: Sequence[Path], out: Path, minutes: float, force: bool
) -> list[str]:
    """Write a config for the files; the messages. Raises `DataError` where ``out`` exists."""
    if out.exists() and not force:
        raise DataError(f"{out} exists; choose another name with --out, or overwrite by --force")
    plan = planned(task, files, minutes)
    text = plan.text()
    load_kinds()
    parse_tree(RunConfig, tomllib.loads(text))
    replace_file(out, text)
    run, config = shlex.quote(f"runs/{out.stem}"), shlex.quote(str(out))
    messages = [f"{out}: {plan.task}; {plan.facts}", *(f"  {reason}" for reason in plan.reasons)]
    if plan.task not in ("captioning", "vision"):
        messages.append(f"look at the data  foveate data report {shlex.join(map(str, files))}")
    messages.append(f"train             foveate train {config} --run {run}")
    return [*messages, f"use it            {TASKS[plan.task].verb.format(run=run)}"]


def planned(task: TaskName, files: Sequence[Path], minutes: float) -> ConfigPlan:
    """The config for the files. Raises `DataError` where no task fits, or they hold too little."""
    if len(files) > 2:
        raise DataError(
            f"give one file, or two (both sides), not {len(files)}: of train, valid and test "
            "name train; the others are read from beside it"
        )
    pictures = _is_pictures(files)
    if task in ("captioning", "vision") or (task == "auto" and pictures):
        if not pictures:
            raise DataError(
                "pictures need a folder, .tar or .zip and a TSV of split, file and label or "
                "caption; or the two IDX files of MNIST"
            )
        plan = _pictures(task, files)
    else:
        plan = _text_or_series(task, files)
    _train(plan, minutes)
    return plan


def _text_or_series(task: TaskName, files: Sequence[Path]) -> ConfigPlan:
    patterns, splits = _patterns(files)
    layout = _layout(find(files[0]))
    if task in ("language", "masked") and len(files) == 2:
        raise DataError(f"{task} reads one file of text, not 2; name one")
    config = TextData.parse(dict(layout))
    report = report_files(files, config, kind=None if task == "auto" else TASKS[task].data)
    if report.series:
        return _forecasting(report, files[0])
    train = report.splits["train"]
    if train.pairs < LEAST:
        raise DataError(
            f"{files[0]}: {train.pairs} lines can be used, {LEAST} are the least; "
            "add data, or name its columns (foveate data report shows what is read)"
        )
    if task == "auto":
        lengths = train.lengths["words"]
        short = max(side.median for side in lengths) <= 1 or "format" in layout
        pairs = "transduction" if short else "translation"
        task = {"labelled": "classification", "text": "language"}.get(train.kind, pairs)  # type: ignore[assignment]
    words = sum(side.total for side in train.lengths["words"])
    plan = ConfigPlan(task, f"{train.pairs:,} lines, {words:,} words")
    if task == "language":
        _language(plan, patterns[0], splits, files[0])
    else:
        _texts(plan, patterns, train.pairs)
        _data(plan, layout, splits, train.pairs, bool(train.skipped))
    return plan


def _layout(file: Path) -> dict[str, object]:
    """Fields of [data] for the layout of a table, where it is not the default."""
    name = file.name.removesuffix(".gz")
    first = next((line for line in read_text(file, TextData()).lines if line.strip()), "")
    if name.endswith(".dict"):
        return {"format": "cmudict"}
    cells = first.split("\t")
    if name.endswith(".tsv") and len(cells) == 3 and FEATURES.fullmatch(cells[-1]):
        return {"format": "inflection"}
    if name.endswith(".jsonl"):
        try:
            record = json.loads(first)
        except ValueError:
            return {}
        keys = [key for key, value in record.items() if isinstance(value, str)]
        if not {"source", "target"} <= {*keys} and len(keys) >= 2:
            last = next((k for k in keys if re.search("label|class|target", k)), keys[1])
            return {"keys": [next(k for k in keys if k != last), last]}
    return {}


def _patterns(files: Sequence[Path]) -> tuple[list[str], dict[str, str]]:
    """The names with {split} where valid and test lie beside train, and their names."""
    if not all("train" in file.name for file in files):
        return [file.as_posix() for file in files], {}
    patterns = [file.with_name(file.name.replace("train", "{split}", 1)) for file in files]
    splits = {}
    for split, names in SPLITS.items():
        for name in names:
            try:
                for pattern in patterns:
                    find(str(pattern).replace("{split}", name))
            except DataError:
                continue
            splits[split] = name
            break
    if "valid" not in splits:
        return [file.as_posix() for file in files], {}
    return [pattern.as_posix() for pattern in patterns], splits


def _data(
    plan: ConfigPlan, layout: dict[str, object], splits: dict[str, str], count: int, skips: bool
) -> None:
    plan.tables["data"] = [f"{key} = {toml_value(value)}" for key, value in layout.items()]
    if not splits:
        share = round(min(0.1, max(0.002, 1000 / count)), 4)
        why = f"holdout {share}: that share validates, and as much tests"
        plan.put("data", f"holdout = {share}  # share of valid, and of test", why=why)
    _name_splits(plan, splits)
    if skips:
        plan.put("data", 'on_bad_line = "skip"', why="lines that cannot be read are skipped")
    if not plan.tables["data"]:
        del plan.tables["data"]


def _name_splits(plan: ConfigPlan, splits: dict[str, str]) -> None:
    renamed = [f'{split} = "{name}"' for split, name in splits.items() if split != name]
    if renamed:
        plan.put("data", f"splits = {{ {', '.join(renamed)} }}")
    if splits:
        plan.reasons.append(f"files of train, {' and '.join(splits.values())} are used as they are")
    if splits and "test" not in splits:
        plan.reasons.append("no test files: name them in data.splits, or evaluate --split valid")


def _texts(plan: ConfigPlan, patterns: Sequence[str], count: int) -> None:
    """Task and model of translation, transduction, classification and hidden words."""
    kind = {"transduction": "translation", "masked": "masked_language"}.get(plan.task, plan.task)
    plan.put("task", f'kind = "{kind}"', f"source = {toml_value(patterns[0])}")
    second = "labels" if plan.task == "classification" else "target"
    if len(patterns) == 2:
        plan.put("task", f"{second} = {toml_value(patterns[1])}")
    if plan.task in ("classification", "masked"):
        frequency = 2 if count >= 1000 else 1
        why = f"words seen {frequency} times or more are tokens"
        plan.put("task", f'tokenizer = {{ kind = "word", min_frequency = {frequency} }}', why=why)
        encoder = "hidden_size = 128, num_heads = 4, ffn_size = 256"
        if plan.task == "masked":
            model, deep = "masked_language_model", "num_layers = 2, dropout = 0.2"
        else:
            model, deep = "classifier", "num_layers = 1, dropout = 0.4"
            plan.put("task", "word_dropout = 0.3")
        plan.put("model", f'kind = "{model}"', why=f"a small Transformer encoder for {count:,}")
        plan.put("model", f'encoder = {{ kind = "transformer", {encoder}, {deep} }}')
        if plan.task == "classification":
            plan.put("model", 'pooling = "attention"', "dropout = 0.5")
        return
    if plan.task == "transduction":
        plan.put("task", 'tokenizer = "character"', why="characters are the tokens")
        plan.put("task", 'metrics = ["exact_match"]')
    else:
        limits = ((2_000, 1000), (10_000, 2000), (60_000, 4000), (500_000, 8000))
        size = next((size for most, size in limits if count < most), 16_000)
        why = f"{size:,} pieces (BPE) for {count:,} pairs"
        plan.put("task", f'tokenizer = {{ kind = "bpe", vocab_size = {size} }}', why=why)
    model = "transformer-small" if count >= 300_000 else "transformer-tiny"
    plan.put("model", f'kind = "{model}"', why=f"{model}: the size for {count:,} pairs")


def _language(plan: ConfigPlan, pattern: str, splits: dict[str, str], file: Path) -> None:
    characters = sum(len(line) + 1 for line in read_text(find(file), TextData()).lines)
    if characters < 2_000:
        raise DataError(f"{file}: {characters:,} characters; 2,000 are the least: add text")
    plan.put("task", 'kind = "language"', f"text = {toml_value(pattern)}")
    if not splits:
        plan.put("task", "shares = [0.9, 0.1, 0.0]  # of the characters, for train, valid, test")
    small = characters < 3_000_000
    block = 256 if characters >= 100_000 else 64
    token = '"character"' if small else '{ kind = "bpe", vocab_size = 8000 }'
    why = f"{'characters' if small else '8,000 pieces (BPE)'}, in blocks of {block} tokens"
    plan.put("task", f"tokenizer = {token}", f"block_length = {block}", why=why)
    model = "gpt-tiny" if small else "llama-tiny"
    position = 'position = { kind = "rope" }, ' if small else ""
    plan.put("model", f'kind = "{model}"', f"decoder = {{ {position}dropout = 0.1 }}")
    plan.reasons.append(f"{model}: the size for {characters:,} characters")
    _name_splits(plan, splits)


def _forecasting(report: DataReport, file: Path) -> ConfigPlan:
    series = report.series["train"]
    season = SEASONS.get(series.step, 1)
    horizon = season if season > 1 else 12
    while horizon > 1 and series.rows < 10 * horizon:
        horizon //= 2
    look_back = max(2, min(336, 2 * horizon if series.rows < 3000 else 14 * horizon))
    if series.rows < 60:
        raise DataError(f"{file}: {series.rows} rows; 60 are the least: add rows")
    plan = ConfigPlan(
        "forecasting", f"{series.rows:,} rows of {len(series.channels)} columns, {series.step}"
    )
    cells = [f"path = {toml_value(file.as_posix())}"]
    if series.missing:
        cells.append('missing = "interpolate"')
        plan.reasons.append("cells without a value are interpolated")
    if series.gaps:
        cells.append('gaps = "split"')
        plan.reasons.append("no window spans missing rows")
    plan.put("task", 'kind = "forecasting"', f"look_back = {look_back}", f"horizon = {horizon}")
    plan.put("task", f"season = {season}", f"series = {{ {', '.join(cells)} }}")
    plan.reasons.append(f"{look_back} rows are read, {horizon} forecast; 70 / 10 / 20 % by time")
    plan.put("model", 'kind = "rnn_forecaster"', 'cell = "gru"', "hidden_size = 32")
    plan.reasons.append("a GRU that reads all columns")
    batch = 16 * (look_back + horizon)
    plan.put("objective", 'kind = "squared_error"')
    plan.put("train", f"batch_tokens = {batch}  # 16 windows")
    return plan


def _is_pictures(files: Sequence[Path]) -> bool:
    idx = all("ubyte" in file.name for file in files)
    archive = files[0].is_dir() or files[0].suffix in (".tar", ".zip")
    return len(files) == 2 and (idx or archive)


def _pictures(task: TaskName, files: Sequence[Path]) -> ConfigPlan:
    if "ubyte" in files[0].name:
        patterns = [f.as_posix().removesuffix(".gz").replace("train", "{split}") for f in files]
        plan = ConfigPlan("vision", "pictures and labels in the format of MNIST")
        pair = f'images = "{patterns[0]}", labels = "{patterns[1]}"'
        pictures, names = f'kind = "idx", {pair}', {"test": "t10k"}
    else:
        rows = [
            line.split("\t") for line in read_text(find(files[1]), TextData()).lines if line.strip()
        ]
        if len(rows) < LEAST or any(len(row) != 3 for row in rows):
            raise DataError(f"{files[1]}: {LEAST} lines or more of split, file, label or caption")
        texts = {row[2] for row in rows}
        few = len(texts) <= max(2, len(rows) // 20)
        guess = "vision" if few else "captioning"
        plan = ConfigPlan(guess if task == "auto" else task, f"{len(rows):,} texts of pictures")
        table = (
            f"files = {toml_value(files[0].as_posix())}, table = {toml_value(files[1].as_posix())}"
        )
        size = 28 if plan.task == "vision" else 64
        pictures = f'kind = "files", {table}, size = {size}'
        names = _split_names({row[0] for row in rows}, files[1])
    kind = "image_classification" if plan.task == "vision" else "captioning"
    plan.put("task", f'kind = "{kind}"', f"pictures = {{ {pictures} }}")
    _name_splits(plan, names)
    model = "vit-tiny" if plan.task == "vision" else "show-attend-tell"
    plan.put("model", f'kind = "{model}"', why=f"{model}: small enough for a processor")
    return plan


def _split_names(names: set[str], table: Path) -> dict[str, str]:
    splits = {s: n for s, known in SPLITS.items() for n in known if n in names}
    if "train" not in names or "valid" not in splits:
        raise DataError(f"{table}: the first column names train, valid and test; add them")
    return splits


def _train(plan: ConfigPlan, minutes: float) -> None:
    """Steps, rate and checkpoints: a rate that falls as 1/√step needs no number of steps."""
    task, training = plan.task, TASKS[plan.task]
    if task in ("translation", "transduction", "classification", "captioning"):
        plan.put("objective", "label_smoothing = 0.1")
    if task != "forecasting":
        plan.put("train", f"batch_tokens = {training.batch_tokens}")
    best, every = training.best, training.every
    plan.put(
        "train",
        f"max_minutes = {minutes:g}  # where training ends; goes on with more",
        f'optimizer = {{ kind = "adamw", lr = {training.rate} }}',
        f'schedule = {{ kind = "inverse_sqrt", warmup_steps = {training.warmup} }}'
        "  # needs no max_steps",
        f'save = {{ every = {every}, keep = 6, best = "{best}" }}',
        f"validation = {{ every = {every}, samples = 2, patience = 20 }}",
        "average = 6  # the mean of the last checkpoints, tried at the end",
    )
    plan.reasons += [
        f"{minutes:g} minute{'s' * (minutes != 1)}; rate as 1/√step, for any number of steps",
        f"the best checkpoint by {best}, every {every} steps; the mean of the last",
    ]
    if task in ("translation", "transduction"):
        plan.put("decode", 'kind = "beam"', "beam_size = 5", "length_penalty = 0.6")
    elif task == "language":
        plan.put("decode", 'kind = "sample"', "temperature = 0.8")
