"""A run of each family, trained in a second or two, for whatever is done with runs."""

import contextlib
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner, Result

from foveate.cli import app
from foveate.run import Run
from foveate.run.training import train
from pictures import write_bars, write_squares


class Printed(NamedTuple):
    """The exit code of a call of the command line, and what it printed."""

    code: int
    out: str
    err: str


def invoked(*words: object, text: str | bytes = "") -> Result:
    """What ``foveate`` with these words returns in this process, where it must succeed."""
    result = CliRunner().invoke(app, list(map(str, words)), input=text)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def python(
    *words: object, env: Mapping[str, str] | None = None, **how: Any
) -> subprocess.CompletedProcess[Any]:
    """A process of Python that has ended, with ``env`` on top; it imports foveate from src."""
    source = {"PYTHONPATH": str(Path(__file__).parent.parent / "src")}
    how = {"capture_output": True, "encoding": "utf-8", "timeout": 600} | how
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, env=os.environ | source | (env or {}), **how)


@contextlib.contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A program that is killed at the end of the block and after two minutes: no test hangs on it.

    ``with subprocess.Popen(…)`` waits for ever where an assertion in the block fails.
    """
    with subprocess.Popen(command, **options) as process:
        last = threading.Timer(120, process.kill)
        last.start()
        try:
            yield process
        finally:
            last.cancel()
            process.kill()


Call = Callable[..., Printed]  # the fixture `call`
Once = Callable[[str, Callable[[Path], None]], Path]  # the fixture `once`

TRAIN = """
[train]
batch_tokens = 256
max_steps = {steps}
precision = "fp32"
log_every = 5
save = {{ every = {half} }}
validation = {{ every = {steps}, samples = 2 }}
optimizer = {{ kind = "adam", lr = 0.01 }}
schedule = {{ kind = "constant" }}
"""
TRANSLATOR = """
[task]
kind = "translation"
source = "{folder}/pairs.{{split}}.tsv"
tokenizer = {{ kind = "word", min_frequency = 1 }}

[model]
kind = "encoder_decoder"
encoder = {{ {encoder}, dropout = 0.0 }}
decoder = {{ {decoder}, dropout = 0.0 }}
"""
LANGUAGE = """
[task]
kind = "language"
text = "{folder}/text.txt"
tokenizer = "byte"
block_length = 32

[model]
kind = "language_model"

[model.decoder]
kind = "recurrent"
cell = "gru"
embedding_size = 16
hidden_size = 16
readout = "state"
dropout = 0.0
"""
CLASSIFIER = """
[task]
kind = "classification"
source = "{folder}/labelled.{{split}}.tsv"
tokenizer = {{ kind = "word", min_frequency = 1 }}

[model]
kind = "classifier"
encoder = {{ kind = "transformer", hidden_size = 16, num_heads = 2, num_layers = 1, dropout = 0.0 }}
"""
MASKED = CLASSIFIER.replace('"classification"', '"masked_language"').replace(
    '"classifier"', '"masked_language_model"'
)
VIT = """
[task]
kind = "image_classification"

[task.pictures]
kind = "idx"
images = "{folder}/{{split}}-images"
labels = "{folder}/{{split}}-labels"
held_out = 4

[model]
kind = "vit-tiny"
"""
FORECASTER = """
[task]
kind = "forecasting"
look_back = 12
horizon = 4
quantiles = [0.1, 0.5, 0.9]
series = {{ path = "{folder}/series.csv" }}

[model]
kind = "patch_forecaster"

[model.encoder]
kind = "transformer"
hidden_size = 8
num_heads = 2
num_layers = 1
stem = {{ kind = "series_patches", size = 4, stride = 4 }}

[objective]
kind = "quantile"
"""
RNN_FORECASTER = """
[task]
kind = "forecasting"
look_back = 12
horizon = 6
series = {{ path = "{folder}/series.csv" }}

[model]
kind = "rnn_forecaster"
hidden_size = 16
"""
CAPTIONER = """
[task]
kind = "captioning"
tokenizer = {{ kind = "word", min_frequency = 1 }}

[task.pictures]
kind = "files"
files = "{folder}/pictures"
table = "{folder}/table.tsv"
size = 16

[model]
kind = "encoder_decoder"
encoder = {{ kind = "convolutional", channels = [6, 8], hidden_size = 12, dropout = 0.0 }}

[model.decoder]
kind = "recurrent"
embedding_size = 10
hidden_size = 12
dropout = 0.0
attention = {{ score = "additive" }}
"""
RNN = 'kind = "recurrent", embedding_size = 24, hidden_size = 24'
TRANSFORMER = 'kind = "transformer", hidden_size = 24, num_heads = 2, num_layers = 2'
SUBJECTS = {"the dog": "le chien", "a cat": "un chat", "a girl": "une fille", "the man": "l'homme"}
VERBS = {"runs": "court", "sleeps": "dort", "eats": "mange", "sings": "chante", "reads": "lit"}


def write_data(folder: Path) -> None:
    """The data of all runs."""
    pairs = list(itertools.product(SUBJECTS.items(), VERBS.items()))
    for split in ("train", "valid", "test"):
        rows = pairs if split == "train" else pairs[::3]
        lines = [f"{s} {v}\t{t} {w}\n" for (s, t), (v, w) in rows]
        (folder / f"pairs.{split}.tsv").write_text("".join(lines), "utf-8")
        kinds = {s: "animal" if s in ("the dog", "a cat") else "human" for s in SUBJECTS}
        labelled = [f"{s} {v}\t{kinds[s]}\n" for (s, _), (v, _) in rows]
        (folder / f"labelled.{split}.tsv").write_text("".join(labelled), "utf-8")
    (folder / "text.txt").write_text("the dog runs .\na cat sleeps .\n" * 60, "utf-8")
    write_bars(folder)
    write_squares(folder)
    dates = [f"{2000 + n // 12}-{n % 12 + 1:02d}-01" for n in range(120)]
    values = [f"{date},{n % 12},{(n * 7) % 5}\n" for n, date in enumerate(dates)]
    (folder / "series.csv").write_text("date,season,other\n" + "".join(values), "utf-8")


def config_file(
    folder: Path, text: str, steps: int = 4, more: str = "", name: str = "config"
) -> Path:
    """A config whose ``{folder}`` is the folder, with [train] and ``more`` lines of it."""
    training = TRAIN.format(steps=steps, half=max(1, steps // 2)) + more
    path = folder / f"{name}.toml"
    path.write_text(text.format(folder=folder.as_posix()) + training, "utf-8")
    return path


def made(folder: Path, names: Sequence[str], steps: int = 20, more: str = "") -> dict[str, Run]:
    """The runs of some names, in folders of these names; ``more`` are lines of [train]."""
    write_data(folder)
    result = {}
    for name in names:
        config = config_file(folder, (CONFIGS | MORE)[name], steps, more, name)
        result[name] = train(config, folder=folder / "runs" / name)
    return result


class Trained(dict[str, Run]):
    """Runs in a folder by their names, each trained when it is first looked up."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> Run:
        self[name] = made(self.folder, [name])[name]
        return self[name]


def translator_text(encoder: str, decoder: str) -> str:
    return TRANSLATOR.replace("{encoder}", encoder).replace("{decoder}", decoder)


def trained(folder: Path, text: str, steps: int = 4) -> Run:
    """The run of a config without [train], whose ``{folder}`` is the folder."""
    return train(config_file(folder, text, steps), folder=folder / "run")


CONFIGS = {
    "rnn": translator_text(RNN, RNN + ', attention = {{ score = "additive" }}'),
    "transformer": translator_text(TRANSFORMER, TRANSFORMER),
    "language": LANGUAGE,
    "classifier": CLASSIFIER,
    "vit": VIT,
    "forecaster": FORECASTER,
}
MORE = {
    "captioner": CAPTIONER,
    "rnn_forecaster": RNN_FORECASTER,
    "masked": MASKED,
}  # those that not every test of all families is for
