"""Word alignment by guided heads of two directions, on the Hansards gold (447 pairs).

    python benchmarks/alignment.py [--work build/alignment]

Two small Transformers, English to French and back, learn from Tatoeba's pairs in the shape of the
gold's text, one to four of them joined at random so that sentences get as long. One head of each is
guided by the links of our HMM (agreement), words without links towards the end of the source.
"unseen": neither the aligner nor the models ever read the 447 pairs. "seen": the aligner learns
from their text too, as is usual for aligners, and the models go on for 200 steps with it, guided by
the aligner's links. Gold chooses nothing: head and rows are the guided ones, the threshold is that
which agrees best with the aligner's links on training sentences. The runs stay in ``--work``
(20 minutes of one processor core) and are not trained again where they are. Adds its rows to
docs/results/alignment.json; what its other rows are is under "earlier".
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import harness
from foveate.align.aer import METHODS, Gold, judge, read_gold
from foveate.align.ibm import HMM, AgreementAligner, Pair
from foveate.data.words import split_blanks, words
from foveate.engine.links import Links, Weights, read_links, read_pharaoh, write_pharaoh
from foveate.run import load
from foveate.run.passes import word_maps
from foveate.tasks.abilities import Aligns

GOLD = harness.DATA / "alignment-gold"
CONFIG = harness.ROOT / "configs" / "translation" / "tatoeba-en-fr-guided.toml"
FULL = {  # clitics before a vowel, and contractions, as the gold writes them
    "l'": "le", "d'": "de", "j'": "je", "m'": "me", "t'": "te", "s'": "se", "c'": "ce",
    "n'": "ne", "qu'": "que", "jusqu'": "jusque", "lorsqu'": "lorsque", "puisqu'": "puisque",
    "quoiqu'": "quoique", "du": "de le", "des": "de les", "au": "à le", "aux": "à les",
}  # fmt: skip
THRESHOLDS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
STEPS = {"unseen": 1100, "seen": 200}
REPEATED = 10  # times that each of the 447 pairs stands in the training text of "seen"
DIRECTIONS = ("en-fr", "fr-en")


def mutual_links(forward: Weights, backward: Weights, threshold: float) -> Links:
    """Return links on which the heads of two directions agree: {(s, t) : √(α_ts β_st) ≥ threshold}.

    α is (T, S + 1), of a model from source to target, and β (S, T + 1), of one from target to
    source; the last columns are the ends. Liang, Taskar and Klein (2006) do this with posteriors.
    """
    mean = np.sqrt(forward[:, :-1] * backward[:, :-1].T)
    return {(int(s), int(t)) for t, s in np.argwhere(mean >= threshold)}


def english(text: str) -> list[str]:
    """Words in lower case, hyphens apart, n't as not."""
    plain = text.replace("’", "'").replace("can't", "can not").replace("won't", "will not")
    plain = plain.replace("n't", " not").replace("'", " '").replace("-", " - ")
    return " ".join(words(plain)).lower().split()


def french(text: str) -> list[str]:
    """Words in lower case, hyphens apart, elisions and contractions written out."""
    plain = text.replace("’", "'").replace("-", " - ").lower()
    return " ".join(FULL.get(word, word) for word in words(plain)).split()


def gold_pairs() -> list[Pair]:
    """The 447 pairs that were annotated, words as they stand."""
    sides = [(GOLD / name).read_text("utf-8").splitlines() for name in ("en.txt", "fr.txt")]
    return [(e.lower().split(), f.lower().split()) for e, f in zip(*sides, strict=True)]


def joined(pairs: Sequence[Pair], links_of: Sequence[Links]) -> list[tuple[Pair, Links]]:
    """All pairs in an order drawn at random, one to four of them after each other, and links."""
    draw, order = random.Random(1), list(range(len(pairs)))
    draw.shuffle(order)
    result, start = list[tuple[Pair, Links]](), 0
    while start < len(order):
        count = draw.randint(1, 4)
        source, target, moved = list[str](), list[str](), Links()
        for index in order[start : start + count]:
            moved |= {(s + len(source), t + len(target)) for s, t in links_of[index]}
            source += pairs[index][0]
            target += pairs[index][1]
        result.append(((source, target), moved))
        start += count
    return result


def write_text(work: Path, name: str, rows: Sequence[tuple[Pair, Links]]) -> None:
    """A TSV and files of links from source to target and back."""
    text = "".join(f"{' '.join(s)}\t{' '.join(t)}\n" for (s, t), _ in rows)
    (work / f"{name}.tsv").write_text(text, encoding="utf-8", newline="\n")
    for direction, turn in zip(DIRECTIONS, (1, -1), strict=True):
        lines = (write_pharaoh({link[::turn] for link in own}) for _, own in rows)  # type: ignore[misc]
        (work / f"{name}.{direction}.align").write_text(
            "".join(f"{x}\n" for x in lines), encoding="utf-8", newline="\n"
        )


def prepare(work: Path, name: str) -> dict[str, Any]:
    """Train the aligner, write the training text and its links; the row of the aligner.

    Where they are there, nothing is done.
    """
    done = work / f"{name}.json"
    if done.exists():
        return dict(json.loads(done.read_text("utf-8")))
    corpus = [(english(e), french(f)) for e, f in harness.tatoeba()]  # in the shape of the gold's
    test = gold_pairs()
    config = AgreementAligner.Config(aligner=HMM.Config(concentration=1e-3, cognates=0.5))
    aligner, started = config.build(), time.perf_counter()
    aligner.train(corpus + (test if name == "seen" else []))
    seconds = round(time.perf_counter() - started)
    rows, of_test = joined(corpus, aligner.align(corpus)), aligner.align(test)
    if name == "seen":
        again = list(zip(test, of_test, strict=True)) * REPEATED
        rows = rows[: len(again)] + again
    write_text(work, name, rows)
    own = row(of_test, seconds=seconds)
    done.write_text(json.dumps(own), encoding="utf-8", newline="\n")
    return own


def trained(work: Path, name: str, direction: str) -> Path:
    """The run of a direction, trained where it is not there."""
    columns = [1, 2] if direction == "en-fr" else [2, 1]
    overrides = [
        f"task.source={work / name}.tsv", f"task.links={work / name}.{direction}.align",
        "task.words=blanks", "task.weight=1.0", f"data.columns={columns}", "train.threads=1",
        f"train.max_steps={STEPS[name]}", f"train.schedule.warmup_steps={STEPS[name] // 8}",
        f"train.save.every={STEPS[name] // 8}", "train.validation.samples=0",
        f"train.validation.every={STEPS[name] // 2}",
    ]  # fmt: skip
    if name == "seen":
        start = work / f"unseen-{direction}"
        overrides += [f"start.run={start}", "start.checkpoint=last", "train.optimizer.lr=1e-3"]
    return harness.trained(work / f"{name}-{direction}", CONFIG, overrides)


def row(results: Sequence[Links], **more: Any) -> dict[str, Any]:
    """Figures on the gold."""
    counts = judge(results, read_gold(GOLD / "gold.txt"))
    figures = {name: round(getattr(counts, name), 4) for name in ("precision", "recall", "aer")}
    return figures | more


def maps_of(run: Path, pairs: Sequence[tuple[str, str]]) -> list[Weights]:
    """The maps of the guided head."""
    loaded = load(run, "last")
    task = loaded.need(Aligns, "align")
    maps = word_maps(task, loaded.model, pairs, task.head.rows, split_blanks)
    return [task.head.weights(own) for own in maps]


def threshold_of(work: Path, runs: Sequence[Path]) -> float:
    """That whose links agree best with the aligner's on 400 training sentences."""
    lines = (work / "unseen.tsv").read_text("utf-8").splitlines()
    link_lines = (work / "unseen.en-fr.align").read_text("utf-8").splitlines()
    chosen = range(0, len(lines), len(lines) // 400)
    gold = [Gold(own, own) for own in (read_pharaoh(link_lines[i]) for i in chosen)]
    forward, backward = both_maps(runs, [lines[i].split("\t") for i in chosen])

    def error(threshold: float) -> float:
        both = zip(forward, backward, strict=True)
        return judge([mutual_links(a, b, threshold) for a, b in both], gold).aer

    return min(THRESHOLDS, key=error)


def both_maps(runs: Sequence[Path], pairs: Sequence[Sequence[str]]) -> list[list[Weights]]:
    """The maps of both directions."""
    turned = [(s, t) for s, t in pairs], [(t, s) for s, t in pairs]
    return [maps_of(run, own) for run, own in zip(runs, turned, strict=True)]


def rows_of(work: Path, name: str) -> dict[str, Any]:
    """Each direction, both joined as links, and both joined as maps."""
    runs = [trained(work, name, direction) for direction in DIRECTIONS]
    forward, backward = both_maps(runs, [(" ".join(s), " ".join(t)) for s, t in gold_pairs()])
    there = [read_links(m) for m in forward]
    back = [{(s, t) for t, s in read_links(m)} for m in backward]
    ends = [harness.logged(run, "end")[-1] for run in runs]
    trainings = [{"steps": end["step"], "seconds": round(end["seconds"])} for end in ends]
    rows = {"en-fr": row(there, **trainings[0]), "fr-en": row(back, **trainings[1])}
    endless = (np.pad(m[:, :-1], ((0, 0), (0, 1))) for m in forward)
    rows["en-fr without the end"] = row(list(map(read_links, endless)))
    for method, join in METHODS.items():
        rows[method] = row([join(a, b) for a, b in zip(there, back, strict=True)])
    threshold = threshold_of(work, runs)
    agreed = [mutual_links(a, b, threshold) for a, b in zip(forward, backward, strict=True)]
    rows["both agree"] = row(agreed, threshold=threshold)
    return rows


def main(work: Path = Path("build/alignment")) -> None:
    work = work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    record = harness.previous("alignment")
    about = {key: record.pop(key, None) for key in ("what", "machine", "command", "remarks")}
    earlier = record.get("earlier", about)  # of the rows that other programs wrote
    for name in STEPS:
        rows = {f"hmm, priors, agreement, text {name}": prepare(work, name)}
        rows |= {
            f"Transformer, guided, {k}, text {name}": v for k, v in rows_of(work, name).items()
        }
        record["rows"] |= rows
        for label, figures in rows.items():
            print(label, figures, flush=True)
    harness.write("alignment", {"what": (__doc__ or "").strip(), **record, "earlier": earlier})


if __name__ == "__main__":
    harness.run(main)
