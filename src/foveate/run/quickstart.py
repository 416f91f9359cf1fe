"""The corpora and configs of the quickstart, and why its translations may be poor."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from foveate.data.synthetic import write
from foveate.files import write_text
from foveate.run import Run
from foveate.train.journal import clock, read


class QuickstartCorpus(NamedTuple):
    """A corpus of the quickstart, and the texts that describe it."""

    name: str  # of its config and its folder
    about: str
    held_out: str
    sizes: Mapping[str, int]  # sentences
    good: float  # BLEU; the whole training has far more
    expected: str  # how long it takes
    sentence: str  # to type next


CORPORA = {  # of `foveate.data.synthetic`
    "everyday": QuickstartCorpus(
        "quickstart", "everyday sentences of Tatoeba (tatoeba.org, CC BY 2.0 FR)",
        "held-out sentences", {"train": 90_362, "valid": 300, "test": 1000}, 25.0,
        "2,400 steps: five minutes", "Where is the station?",
    ),
    "short": QuickstartCorpus(
        "grammar", "an English–French grammar, with the true word alignments",
        "held-out sentences, with combinations that training never showed",
        {"train": 60_000, "valid": 200, "test": 500}, 50.0, "2,000 steps: two minutes",
        "She closes the old window.",
    ),
}  # fmt: skip


def prepared(folder: Path, corpus: str, sizes: Mapping[str, int]) -> Path:
    """Write a corpus into ``folder/data``, and its config beside it; return the config's path."""
    name = CORPORA[corpus].name
    write(folder / "data", sizes, corpus)
    template = files("foveate").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    write_text(folder / f"{name}.toml", template.replace("{folder}", folder.as_posix()))
    return folder / f"{name}.toml"


def why_poor(run: Run, bleu: float, good: float, resume: str) -> str:
    """Return why the translations are poor, and how to resume; "" if they are not."""
    if bleu >= good:
        return ""
    last = read(run.path)[-1]
    step, seconds = last["step"], float(last["seconds"])
    all_steps = run.config.train.max_steps or 0
    if step >= all_steps:
        return f"BLEU {bleu:.2f} is poor: {all_steps:,} steps are too few; resume with more"
    needed = seconds / max(1, step) * all_steps
    return (
        f"BLEU {bleu:.2f} is poor, for only {step:,} of {all_steps:,} steps were done in "
        f"{clock(seconds)}: this machine is slow, or other programs use it. All steps take about "
        f"{clock(needed)} at this pace; to go on: {resume} "
        f"train.max_minutes={int(needed / 60) + 1}"
    )
