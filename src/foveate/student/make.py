"""From a teacher and text to a small translator: plan, answers, data, training, a packed file."""

import json
import math
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from foveate.config import Tree, assigned, merge
from foveate.data.corpus import Meter
from foveate.documents.languages import Direction
from foveate.engine import packed
from foveate.files import replace_file
from foveate.kinds import load_kinds
from foveate.models.encoder_decoder import Model
from foveate.nn.spec import Tokens
from foveate.run.pack import pack
from foveate.run.training import train
from foveate.student.journal import Journal
from foveate.student.pairs import ACCEPTED, BACK, Pair, decisions, noisy
from foveate.tasks.base import spread
from foveate.tasks.draft import planned, size_for
from foveate.tasks.metrics import bleu, chrf

SAMPLE = 20  # sentences by which time and cost are judged
VALID = 1000  # pairs that validate, at most; of few pairs a twentieth


class TaughtText:
    """Text that a teacher answers in a ``language``, and the journal of its answers."""

    def __init__(self, lines: Sequence[str], journal: Journal, language: str) -> None:
        self.lines, self.journal, self.language = lines, journal, language
        self.distinct = list(dict.fromkeys(line for line in lines if line.strip()))

    def remaining(self) -> list[str]:
        """Return the distinct lines without an answer."""
        return [line for line in self.distinct if line not in self.journal.replies]

    def plan(self) -> tuple[str, float]:
        """Return what its remaining answers take and cost, and their seconds.

        A sample of them is answered; the answers of a paid teacher are kept.
        """
        remaining, teacher, began = self.remaining(), self.journal.teacher, time.perf_counter()
        sample = [remaining[n] for n in spread(len(remaining), SAMPLE)]
        if teacher.paid:
            self.journal.ask(sample)
        else:
            deque(teacher.translate(sample), maxlen=0)
        pace = (time.perf_counter() - began) / max(1, len(sample))
        remaining = self.remaining()
        cost = self.journal.account.expected(remaining) if teacher.paid else 0.0
        return (
            f"into {self.language}: {len(self.lines):,} sentences, {len(remaining):,} not answered "
            f"yet ({sum(map(len, remaining)):,} characters): {pace * len(remaining):,.0f} s, "
            f"cost {cost:.4f}",
            pace * len(remaining),
        )

    def pairs(self, least_score: float) -> tuple[list[str], list[Pair]]:
        """Return the decision on each line, and the accepted pairs, once all is answered."""
        with Meter(f"into {self.language}", len(self.distinct), "lines") as meter:
            self.journal.ask(self.distinct, meter.add)
        replies = self.journal.replies
        result = decisions(self.lines, replies, self.language, least_score)
        used = (x for x, why in zip(self.lines, result, strict=True) if why == ACCEPTED)
        return result, [(x, str(replies[x].text)) for x in used]


@dataclass
class StudentJob:
    """A student for a pair of languages in the folder ``out``; every part resumes.

    It learns from the answers to ``forward``, from the text of ``back``, whose answers become
    sources behind `BACK`, and from noisy copies of a share of these pairs.
    """

    out: Path
    pair: Direction
    forward: TaughtText
    back: TaughtText | None = None
    noise: float = 0.0
    least_score: float = -math.inf
    minutes: float = 30.0
    overrides: Sequence[str] = ()

    @property
    def texts(self) -> dict[str, TaughtText]:
        """The texts that teachers answer, by name."""
        return {"source": self.forward} | ({"back": self.back} if self.back else {})

    def plan(self) -> list[str]:
        """Return what is asked, how long it takes, what it costs, and how large the student is."""
        rows, seconds = zip(*(text.plan() for text in self.texts.values()), strict=True)
        load_kinds()
        pieces, kind = size_for(sum(len(text.lines) for text in self.texts.values()))
        model = merge({"kind": kind}, self._tree().get("model", {}))
        network = Model.Config.parse(model).build(Tokens(pieces), Tokens(pieces))
        millions = sum(weights.numel() for weights in network.parameters()) / 1e6
        return [
            *rows,
            f"student: {model['kind']}, {pieces:,} pieces a side, {millions:.1f} M parameters, "
            f"about {millions:.1f} MB in int8, {self.minutes:g} minutes of training",
            f"in all {self.minutes / 60 + sum(seconds) / 3600:.1f} hours; "
            f"spent so far {self.forward.journal.account.spent:.4f}",
        ]

    def _tree(self) -> Tree:
        return reduce(merge, map(assigned, self.overrides), Tree())

    def write_data(self) -> list[str]:
        """Write the pairs, the decision on each line and their counts; return these as a table."""
        counts, parts = dict[str, dict[str, int]](), list[list[Pair]]()
        for name, text in self.texts.items():
            result, pairs = text.pairs(self.least_score)
            replace_file(self.out / f"{name}.decisions", "".join(f"{why}\n" for why in result))
            counts[name] = dict(Counter(result).most_common())
            parts.append(pairs)
        every = max(20, len(parts[0]) // VALID)
        valid = parts[0][::every]
        train = [pair for n, pair in enumerate(parts[0]) if n % every]
        train += [(f"{BACK} {x}", y) for part in parts[1:] for y, x in part]
        train += noisy(train, self.noise)
        counts["pairs"] = {"train": len(train), "valid": len(valid)}
        (self.out / "data").mkdir(exist_ok=True)
        for split, own in (("train", train), ("valid", valid)):
            for side, file in enumerate(self._files(split)):
                lines = (" ".join(pair[side].split()) + "\n" for pair in own)
                replace_file(file, "".join(lines))
        replace_file(self.out / "report.json", json.dumps(counts, indent=2) + "\n")
        return [f"{name:<8}{n:>10,}  {why}" for name in counts for why, n in counts[name].items()]

    def _files(self, split: str) -> list[Path]:
        codes = self.pair.source, self.pair.target
        return [self.out / "data" / f"{split}.{code}" for code in codes]

    def train(self) -> Path:
        """Train a student on the data; return its packed file."""
        plan = planned("translation", self._files("train"), self.minutes, self._tree())
        replace_file(config := self.out / "student.toml", plan.text())
        run = train(config, self.overrides, self.out / "run")
        return pack(run, self.out / f"{self.pair.source}-{self.pair.target}.safetensors", "int8")


def measured(file: Path, sources: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return chrF, BLEU, megabytes and sentences a second of a packed file on a test set."""
    model, began = packed.load(file), time.perf_counter()
    outputs = [str(answer) for answer in model.translate(sources)]
    seconds = time.perf_counter() - began
    figures = {"chrf": chrf(outputs, references)[0], "bleu": bleu(outputs, references)[0]}
    return figures | {"MB": file.stat().st_size / 1e6, "sentences/s": len(sources) / seconds}
