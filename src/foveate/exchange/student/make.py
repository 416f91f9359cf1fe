"""From teachers' answers to a small translator: plan, data, training, a packed file, figures."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from foveate.config import all_assigned, merge
from foveate.documents.languages import Direction
from foveate.engine import packed
from foveate.exchange.student.journal import AnswerJournal
from foveate.exchange.student.pairs import ACCEPTED, BACK, Pair, decisions, noisy
from foveate.files import replace_file
from foveate.kinds import load_kinds
from foveate.models.encoder_decoder import Model
from foveate.nn.spec import Tokens
from foveate.run.pack import pack
from foveate.run.training import train
from foveate.tasks.draft import planned, size_for
from foveate.tasks.metrics import bleu, chrf

VALID = 1000  # pairs that validate, at most; of few pairs a twentieth
Texts = Mapping[str, AnswerJournal]  # "source", and "back" in the target language


def plan(texts: Texts, minutes: float, overrides: Sequence[str]) -> list[str]:
    """Return what is asked, how long it takes, what it costs, and how large the student is."""
    rows, hours = [], minutes / 60
    for name, text in texts.items():
        seconds, lines = text.seconds(), text.remaining()
        hours += seconds / 3600
        cost = text.account.expected(lines) if text.teacher.paid else 0.0
        rows.append(
            f"{name}: {len(text.lines):,} sentences, {len(lines):,} without an answer "
            f"({sum(map(len, lines)):,} characters): {seconds:,.0f} s, cost {cost:.4f}"
        )
    load_kinds()
    pieces, kind = size_for(sum(len(text.lines) for text in texts.values()))
    model = merge({"model": {"kind": kind}}, all_assigned(overrides))["model"]
    kind = model if isinstance(model, str) else model["kind"]
    network = Model.Config.parse(model).build(Tokens(pieces), Tokens(pieces))
    millions = sum(weights.numel() for weights in network.parameters()) / 1e6
    return [
        *rows,
        f"student: {kind}, {pieces:,} pieces a side, {millions:.1f} M parameters, about "
        f"{millions:.1f} MB in int8, {minutes:g} minutes of training",
        f"in all {hours:.1f} hours; spent so far {texts['source'].account.spent:.4f}",
    ]


def write_data(
    out: Path, pair: Direction, texts: Texts, noise: float, least_score: float
) -> list[str]:
    """Write the pairs, the decision on each line and their counts; return these as a table.

    The valid pairs have answers of the teacher of "source"; those of "back" are sources behind
    `BACK`. A ``noise`` share of the pairs is copied.
    """
    counts, parts = dict[str, dict[str, int]](), list[list[Pair]]()
    languages = pair.target, pair.source
    for (name, text), language in zip(texts.items(), languages, strict=False):
        replies = text.answer()
        result = decisions(text.lines, replies, language, least_score)
        replace_file(out / f"{name}.decisions", "".join(f"{why}\n" for why in result))
        counts[name] = dict(Counter(result).most_common())
        used = (x for x, why in zip(text.lines, result, strict=True) if why == ACCEPTED)
        parts.append([(x, str(replies[x].text)) for x in used])
    every = max(20, len(parts[0]) // VALID)
    train = [pair for n, pair in enumerate(parts[0]) if n % every]
    train += [(f"{BACK} {x}", y) for part in parts[1:] for y, x in part]
    splits = {"train": [*train, *noisy(train, noise)], "valid": parts[0][::every]}
    counts["pairs"] = {split: len(own) for split, own in splits.items()}
    (out / "data").mkdir(exist_ok=True)
    for split, own in splits.items():
        for side, file in enumerate(_files(out, pair, split)):
            replace_file(file, "".join(" ".join(each[side].split()) + "\n" for each in own))
    replace_file(out / "report.json", json.dumps(counts, indent=2) + "\n")
    return [f"{name:<8}{n:>10,}  {why}" for name in counts for why, n in counts[name].items()]


def trained(out: Path, pair: Direction, minutes: float, overrides: Sequence[str]) -> Path:
    """Train a student on the data, or resume it; return its packed file."""
    draft = planned("translation", _files(out, pair, "train"), minutes, all_assigned(overrides))
    replace_file(out / "student.toml", draft.text())
    run = train(out / "student.toml", overrides, out / "run")
    return pack(run, out / f"{pair.source}-{pair.target}.safetensors", "int8")


def _files(out: Path, pair: Direction, split: str) -> list[Path]:
    return [out / "data" / f"{split}.{code}" for code in (pair.source, pair.target)]


def measured(file: Path, sources: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return chrF, BLEU, megabytes and sentences a second of a packed file on a test set."""
    model, began = packed.load(file), time.perf_counter()
    outputs = [str(answer) for answer in model.translate(sources)]
    pace = len(sources) / (time.perf_counter() - began)
    figures = {"chrf": chrf(outputs, references)[0], "bleu": bleu(outputs, references)[0]}
    return figures | {"MB": file.stat().st_size / 1e6, "sentences/s": pace}
