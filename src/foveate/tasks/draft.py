"""Draft a config for files: its task and data by what they hold, its model and training by size."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from foveate.config import ConfigError, Tree, toml_line
from foveate.data.catalogue import DataError, find
from foveate.data.corpus import read_text
from foveate.data.recognition import SPLITS, layout_for, patterns_of
from foveate.data.report import Kind, SplitReport, dated, report_files
from foveate.data.series import SeriesData, date_column
from foveate.data.text import (
    BILINGUAL,
    UNPAIRED,
    TextData,
    decoded_lines,
    ending_of,
    files_of,
    is_table,
)


class TaskDefaults(NamedTuple):
    """The verb that uses a run of a task, the kind of its data, and how it trains."""

    verb: str
    data: Kind | None = None
    best: str = "accuracy"  # the figure of the best checkpoint
    batch_tokens: int = 1024
    rate: str = "2e-3"  # and the weight decay, where the usual one is too little
    warmup: int = 50
    every: int = 200  # steps between checkpoints
    steps: int | None = None  # where training ends
    objective: Sequence[str] = ()  # lines of this table
    decode: Sequence[str] = ()


_TABLES = tomllib.loads(Path(__file__).with_name("draft.toml").read_text(encoding="utf-8"))
TASKS = {name: TaskDefaults(**fields) for name, fields in _TABLES.items()}
FEW_LABELS = TASKS["classification"]._replace(rate="2e-3, weight_decay = 1.0", steps=1500)
SEASONS = {"1 hour": 24, "1 day": 7, "7 days": 52, "1 month": 12, "15 minutes": 96}
toml_value = partial(json.dumps, ensure_ascii=False)
LEAST = 20  # pairs, texts or rows from which a config is written


@dataclass
class ConfigPlan:
    """The tables of a config as TOML lines, and the reason of each choice."""

    task: str
    facts: str
    training: TaskDefaults
    tables: dict[str, list[str]] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    top: Tree = field(default_factory=lambda: {"seed": 1})  # the fields before the tables

    def put(self, table: str, *lines: str, why: str = "") -> None:
        """Add lines to a table; ``why`` is printed."""
        self.tables.setdefault(table, []).extend(lines)
        if why:
            self.reasons.append(why)

    def override(self, tree: Tree) -> None:
        """Make a tree of this document: lines that give the same value keep their comments."""
        before, self.tables, self.top = self.tables, {}, {}
        for name, fields in tree.items():
            if not isinstance(fields, dict):
                self.top[name] = fields
                continue
            lines = self.tables[name] = []
            same = {key: line for line in before.get(name, []) for key in tomllib.loads(line)}
            for key, value in fields.items():
                line = same.get(key, "")
                equal = tomllib.loads(line) == {key: value}
                lines.append(line if equal else toml_line(key, value))

    def text(self) -> str:
        """The document."""
        tables = (f"[{name}]\n" + "\n".join(lines) for name, lines in self.tables.items() if lines)
        head = f"# {self.task}: {self.facts}.\n# Written by foveate new; foveate kinds FIELD"
        top = "\n".join(toml_line(key, value) for key, value in self.top.items())
        return f"{head} explains each field.\n{top}\n\n" + "\n\n".join(tables) + "\n"


def planned(task: str, files: Sequence[Path], minutes: float, over: Tree) -> ConfigPlan:
    """The config for the files, which are read as ``over`` says.

    Raises `DataError` where no task fits, or they hold too little.
    """
    archive = files[0].is_dir() or files[0].suffix in (".tar", ".zip")
    archive = archive and not any(ending_of(file) in BILINGUAL for file in files)
    pictures = len(files) == 2 and (archive or all("ubyte" in file.name for file in files))
    if task in ("captioning", "vision") or (task == "auto" and pictures):
        if not pictures:
            raise DataError(
                "pictures need a folder, .tar or .zip and a TSV of split, file and label or "
                "caption; or the two IDX files of MNIST"
            )
        plan = _pictures(task, files)
    else:
        plan = _text_or_series(task, files, over)
    _train(plan, minutes, over)
    return plan


def _text_or_series(task: str, files: Sequence[Path], over: Tree) -> ConfigPlan:
    paths = [find(file, folders=True) for file in files]
    if len(paths) == 2 and paths[0].samefile(paths[1]):
        raise DataError(f"{files[0]} is named twice; name a different file for each side")
    several = len(files) > 1 and all(map(is_table, paths))
    if len(files) > 2 and not several:
        raise DataError(
            f"give one file, or two (one for each side), not {len(files)}; of train, valid "
            "and test, name train: the others are found beside it"
        )
    if task in ("auto", "forecasting") and len(files) == 1:
        named = over.get("task", {}).get("series", {}) if isinstance(over.get("task"), dict) else {}
        series = SeriesData.parse({"path": files[0].as_posix(), **named}, ("task", "series"))
        if task == "forecasting" or date_column(paths[0], series) is not None:
            return _forecasting(dated(files[0], series), named)
    patterns, splits = patterns_of(files)
    settings = over.get("data", {})
    if not isinstance(settings, dict):
        raise ConfigError(
            f"needs a table, not {settings!r}: write data.format={settings}", ("data",)
        )
    layout, labelled = layout_for(files_of(paths[0])[0], task, settings)
    config = TextData.parse(layout | settings, ("data",))
    if task in ("language", "masked") and len(files) > 1:
        raise DataError(f"{task} reads one text file, not {len(files)}; name one")
    bilingual = any(ending_of(file) in BILINGUAL for path in paths for file in files_of(path))
    kind = ("labelled" if labelled else None) if task == "auto" else TASKS[task].data
    if bilingual and kind == "labelled":
        raise DataError(f"{files[0]} holds translations, not labels: name a task such as auto")
    report = report_files(files, config, kind=kind or ("pairs" if is_table(paths[0]) else None))
    train = report.splits["train"]
    _refuse_too_few(train, files[0])
    if task == "auto":
        short = max(side.median for side in train.lengths["words"]) <= 1 or "format" in layout
        pairs = "transduction" if short else "translation"
        task = {"labelled": "classification", "text": "language"}.get(train.kind, pairs)
    words = sum(side.total for side in train.lengths["words"])
    few = task == "classification" and len(train.labels) < 10
    facts = f"{train.pairs:,} lines, {words:,} words"
    plan = ConfigPlan(task, facts, FEW_LABELS if few else TASKS[task])
    chosen = [*(config.columns if "columns" in layout else config.keys if "keys" in layout else ())]
    plan.reasons += [f"{' and '.join(map(str, chosen))} are read"] if chosen else []
    plan.reasons += [f"odd: {f.name}, {f.count:,}" for f in train.findings]
    plan.reasons += [f"left out: {reason}, {n:,}" for reason, n in train.dropped.items()]
    if several and task not in ("translation", "transduction"):
        raise DataError(f"{task} reads one file, not {len(files)}: join them into one")
    if task == "language":
        if splits and "valid" not in splits:  # the share that validates is taken from one file
            plan.reasons.append(f"no valid file: only {files[0]} is read, and divided")
            patterns, splits = [files[0].as_posix()], {}
        _language(plan, patterns[0], splits, files[0])
    else:
        _texts(plan, patterns, train.pairs, several)
        _data(plan, layout, splits, train.pairs, bool(train.skipped))
    return plan


def _refuse_too_few(train: SplitReport, file: Path) -> None:
    """Raise `DataError` where a side is shorter than the other, or too few lines can be used."""
    if unpaired := [line for line in train.skipped if UNPAIRED in line]:
        raise DataError(f"{unpaired[0]}; line n of both files must be the same pair")
    if train.pairs < LEAST:
        lost = "".join(f"; {what}: {count:,}" for what, count in train.dropped.items())
        lost += f"; the first unusable line: {train.skipped[0]}" if train.skipped else ""
        raise DataError(
            f"{file}: {train.pairs} lines can be used; at least {LEAST} are needed{lost}; "
            "add data, or set data.columns (foveate data report shows what is read)"
        )


def _data(
    plan: ConfigPlan, layout: dict[str, object], splits: dict[str, str], count: int, skips: bool
) -> None:
    plan.put("data", *(f"{key} = {toml_value(value)}" for key, value in layout.items()))
    if "valid" not in splits:
        share = round(min(0.1, max(0.002, 1000 / count)), 4)
        why = f"holdout {share}: that share validates" + ("" if splits else ", and as much tests")
        plan.put(
            "data", f"holdout = {share}  # share of valid" + " and of test" * (not splits), why=why
        )
    _name_splits(plan, splits)
    if skips:
        plan.put("data", 'on_bad_line = "skip"', why="lines that cannot be read are skipped")


def _name_splits(plan: ConfigPlan, splits: dict[str, str]) -> None:
    renamed = [f'{split} = "{name}"' for split, name in splits.items() if split != name]
    if renamed:
        plan.put("data", f"splits = {{ {', '.join(renamed)} }}")
    if splits:
        plan.reasons.append(f"files of train, {' and '.join(splits.values())} are used as they are")
    if splits and "test" not in splits:
        plan.reasons.append("no test files: name them in data.splits, or evaluate --split valid")


def _texts(plan: ConfigPlan, patterns: Sequence[str], count: int, several: bool) -> None:
    """Task and model of translation, transduction, classification and hidden words."""
    kind = {"transduction": "translation", "masked": "masked_language"}.get(plan.task, plan.task)
    files = ", ".join(f"{{ source = {toml_value(pattern)} }}" for pattern in patterns)
    source = f"corpora = [{files}]" if several else f"source = {toml_value(patterns[0])}"
    plan.put("task", f'kind = "{kind}"', source)
    second = "labels" if plan.task == "classification" else "target"
    if len(patterns) == 2 and not several:
        plan.put("task", f"{second} = {toml_value(patterns[1])}")
    if plan.task == "classification":
        tokenizer = f'kind = "word", min_frequency = {1 if plan.training is FEW_LABELS else 2}'
        plan.put("task", f"tokenizer = {{ {tokenizer} }}", "word_dropout = 0.1")
        encoder = 'encoder = { kind = "cbow", embedding_size = 256, dropout = 0.2 }'
        why = "mean of word vectors, trained in a minute; evaluate also prints TF-IDF"
        plan.put("model", 'kind = "classifier"', encoder, why=why)
        plan.put("model", 'pooling = "mean"', "dropout = 0.3")
        return
    if plan.task == "masked":
        frequency = 2 if count >= 1000 else 1
        why = f"words that occur {frequency} times or more are tokens"
        plan.put("task", f'tokenizer = {{ kind = "word", min_frequency = {frequency} }}', why=why)
        encoder = "hidden_size = 128, num_heads = 4, ffn_size = 256, num_layers = 2, dropout = 0.2"
        why = f"a small Transformer encoder for {count:,}"
        plan.put("model", 'kind = "masked_language_model"', why=why)
        plan.put("model", f'encoder = {{ kind = "transformer", {encoder} }}')
        return
    if plan.task == "transduction":
        plan.put("task", 'tokenizer = "character"', why="characters are the tokens")
        plan.put("task", 'metrics = ["exact_match"]')
    else:
        size, _ = size_for(count)
        why = f"{size:,} pieces (BPE) for {count:,} pairs"
        why += "; a glossary and a memory may help more than a model" if count < 2000 else ""
        plan.put("task", f'tokenizer = {{ kind = "bpe", vocab_size = {size} }}', why=why)
    _, model = size_for(count)
    plan.put("model", f'kind = "{model}"', why=f"{model}: the size for {count:,} pairs")


def size_for(pairs: int) -> tuple[int, str]:
    """Return the number of BPE pieces, and the kind of the model, for so many pairs."""
    limits = ((2_000, 1000), (10_000, 2000), (60_000, 4000), (500_000, 8000))
    pieces = next((size for most, size in limits if pairs < most), 16_000)
    return pieces, "transformer-small" if pairs >= 300_000 else "transformer-tiny"


def _language(plan: ConfigPlan, pattern: str, splits: dict[str, str], file: Path) -> None:
    characters = sum(len(line) + 1 for line in read_text(find(file), TextData()).lines)
    if characters < 2_000:
        raise DataError(f"{file}: {characters:,} characters; at least 2,000 are needed: add text")
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


def _forecasting(data: SeriesData, settings: Tree) -> ConfigPlan:
    file = Path(data.path)
    series = report_files([file], TextData(), kind="series", series=data).series["train"]
    season = SEASONS.get(series.step, 1)
    horizon = season if season > 1 else 12
    while horizon > 1 and series.rows < 10 * horizon:
        horizon //= 2
    look_back = max(2, min(336, 2 * horizon if series.rows < 3000 else 14 * horizon))
    if series.rows < 60:
        raise DataError(f"{file}: {series.rows} rows; at least 60 are needed: add rows")
    facts = f"{series.rows:,} rows of {len(series.channels)} columns, {series.step}"
    plan = ConfigPlan("forecasting", facts, TASKS["forecasting"])
    cells = [f"path = {toml_value(file.as_posix())}"]
    read = {"date": data.date, "date_format": data.date_format}
    cells += [f"{key} = {toml_value(v)}" for key, v in read.items() if v and key not in settings]
    if series.utc:
        plan.reasons.append("dates have offsets of UTC, and are converted to UTC")
    if series.missing:
        cells.append('missing = "interpolate"')
        plan.reasons.append("cells without a value are interpolated")
    if series.gaps:
        cells.append('gaps = "split"')
        plan.reasons.append("no window spans missing rows")
    plan.put("task", 'kind = "forecasting"', f"look_back = {look_back}", f"horizon = {horizon}")
    plan.put("task", f"season = {season}", f"series = {{ {', '.join(cells)} }}")
    plan.reasons.append(f"{look_back} rows are read, {horizon} forecast; 70 / 10 / 20 % by time")
    plan.put("model", 'kind = "linear_forecaster"', why="a linear map for each column")
    plan.put("objective", 'kind = "squared_error"')
    plan.put("train", f"batch_tokens = {64 * (look_back + horizon)}  # 64 windows")
    return plan


def _pictures(task: str, files: Sequence[Path]) -> ConfigPlan:
    if "ubyte" in files[0].name:
        patterns = [f.as_posix().removesuffix(".gz").replace("train", "{split}") for f in files]
        plan = ConfigPlan("vision", "pictures and labels of MNIST", TASKS["vision"])
        pair = f'images = "{patterns[0]}", labels = "{patterns[1]}"'
        pictures, names = f'kind = "idx", {pair}', {"test": "t10k"}
    else:
        lines = (line for line, _ in decoded_lines(find(files[1])))
        rows = [line.split("\t") for line in lines if line.strip()]
        if len(rows) < LEAST or any(len(row) != 3 for row in rows):
            raise DataError(
                f"{files[1]}: {LEAST} or more lines of split TAB file TAB label or caption "
                "are needed"
            )
        few = len({row[2] for row in rows}) <= max(2, len(rows) // 20)
        if task == "auto":
            task = "vision" if few else "captioning"
        plan = ConfigPlan(task, f"{len(rows):,} texts of pictures", TASKS[task])
        table = (
            f"files = {toml_value(files[0].as_posix())}, table = {toml_value(files[1].as_posix())}"
        )
        pictures = f'kind = "files", {table}, size = {28 if plan.task == "vision" else 64}'
        columns = {row[0] for row in rows}
        names = {s: n for s, known in SPLITS.items() for n in known if n in columns}
        if "train" not in columns or "valid" not in names:
            raise DataError(f"{files[1]}: the first column must contain train and valid; add them")
    kind = "image_classification" if plan.task == "vision" else "captioning"
    plan.put("task", f'kind = "{kind}"', f"pictures = {{ {pictures} }}")
    _name_splits(plan, names)
    model = "vit-tiny" if plan.task == "vision" else "show-attend-tell"
    plan.put("model", f'kind = "{model}"', why=f"{model}: small enough for a processor")
    return plan


def _train(plan: ConfigPlan, minutes: float, over: Tree) -> None:
    """Steps, rate and checkpoints: the rate follows the larger share of steps and of time."""
    training = plan.training
    named = over["train"].get("max_steps") if isinstance(over.get("train"), dict) else None
    warmup = min(training.warmup, named // 5) if isinstance(named, int) else training.warmup
    if training.objective:
        plan.put("objective", *training.objective)
    if plan.task != "forecasting":
        plan.put("train", f"batch_tokens = {training.batch_tokens}")
    every = training.every
    plan.put(
        "train",
        *([f"max_steps = {training.steps}"] if training.steps else []),
        f"max_minutes = {minutes:g}  # training and the decay of the rate end by then",
        f'optimizer = {{ kind = "adamw", lr = {training.rate} }}',
        f'schedule = {{ kind = "cosine", warmup_steps = {warmup} }}',
        f'save = {{ every = {every}, keep = 2, best = "{training.best}" }}',
        f"validation = {{ every = {every}, samples = 2, patience = 20 }}",
    )
    limit = f"{training.steps:,} steps, at most " if training.steps else ""
    plan.reasons += [
        f"{limit}{minutes:g} minute{'s' * (minutes != 1)}; the rate falls as a cosine to that end",
        f"the best checkpoint by {training.best}, every {every} steps",
    ]
    if training.decode:
        plan.put("decode", *training.decode)
