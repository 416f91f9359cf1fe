"""Word alignment on the Hansards gold (447 pairs), every aligner trained on Tatoeba en–fr.

    python benchmarks/alignment.py pairs FILE.tsv      the training text, in the gold's shape
    python benchmarks/alignment.py aligners [NAME …]   IBM 1, IBM 2, HMM, … of foveate.align
    python benchmarks/alignment.py eflomal PROGRAM     eflomal-align, the same text
    python benchmarks/alignment.py run NAME RUN        every head of a run, the best one kept

Each adds its rows to docs/results/alignment.json. The text of the 447 pairs, without their links,
is part of the training text of all of them, eflomal included, as is usual for aligners that learn
without gold. The head of a run is chosen on the gold, or by agreement with the best aligner's
links, which needs none: both are reported.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hansards
import harness
from foveate.align.aer import (
    METHODS,
    Gold,
    Links,
    choose,
    judge,
    read_gold,
    read_pharaoh,
    write_pharaoh,
)
from foveate.align.ibm import (
    HMM,
    AgreementAligner,
    Aligner,
    DiagonalModel2,
    Model1,
    Model2,
    Symmetrized,
)
from foveate.data.words import split_blanks

RARE = {"concentration": 1e-3, "cognates": 0.5}  # the priors of t that help, see bitext.Lexicon
ALIGNERS: dict[str, Any] = {
    "ibm1": Model1.Config(),
    "ibm2": Model2.Config(),
    "ibm2, smoothed": Model2.Config(smoothing=1.0),
    "ibm2, symmetrised": Symmetrized.Config(aligner=Model2.Config(smoothing=1.0)),
    "diagonal": DiagonalModel2.Config(),
    "hmm": HMM.Config(),
    "hmm, priors, symmetrised": Symmetrized.Config(aligner=HMM.Config(**RARE)),
    "hmm, priors, agreement": AgreementAligner.Config(aligner=HMM.Config(**RARE)),
}
LINKS = Path(tempfile.gettempdir()) / "foveate-agreement.links"  # of the best aligner


def gold() -> list[Gold]:
    return read_gold(hansards.GOLD / "gold.txt")


def row(results: Sequence[Links], **more: Any) -> dict[str, Any]:
    counts = judge(results, gold())
    figures = {name: round(getattr(counts, name), 4) for name in ("precision", "recall", "aer")}
    return figures | more


def add(rows: dict[str, Any]) -> None:
    """Put rows beside those that are there."""
    before = harness.previous("alignment").get("rows", {})
    for name, figures in rows.items():
        print(name, figures, flush=True)
    harness.write("alignment", {"what": (__doc__ or "").strip(), "rows": before | rows})


def aligners(names: Sequence[str]) -> None:
    test = hansards.gold_pairs()
    pairs = hansards.tatoeba() + test
    for name in names or ALIGNERS:
        config: Aligner.Config = ALIGNERS[name]
        aligner, started = config.build(), time.perf_counter()
        aligner.train(pairs)
        seconds, links = round(time.perf_counter() - started), aligner.align(test)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        add({name: row(links, seconds=seconds, peak_gib=round(memory, 2), config=config.tree())})
        if name == "hmm, priors, agreement":
            LINKS.write_text("".join(write_pharaoh(result) + "\n" for result in links))


def eflomal(program: str) -> None:
    """Its defaults (model 3: HMM and fertility), each direction and all five joinings."""
    pairs = hansards.tatoeba() + hansards.gold_pairs()
    with tempfile.TemporaryDirectory() as name:
        files = [Path(name) / part for part in ("s", "t", "forward", "reverse")]
        for side, file in enumerate(files[:2]):
            file.write_text("".join(" ".join(pair[side]) + "\n" for pair in pairs))
        started = time.perf_counter()
        arguments = ["-s", files[0], "-t", files[1], "-f", files[2], "-r", files[3], "--overwrite"]
        subprocess.run([program, *map(str, arguments)], check=True)
        seconds = round(time.perf_counter() - started)
        forward, reverse = (
            [read_pharaoh(line) for line in file.read_text().splitlines()[-447:]]
            for file in files[2:]
        )
    rows = {"eflomal, forward": row(forward, seconds=seconds), "eflomal, reverse": row(reverse)}
    for method, join in METHODS.items():
        links = [join(f, r) for f, r in zip(forward, reverse, strict=True)]
        rows[f"eflomal, {method}"] = row(links)
    add(rows)


def run(name: str, folder: str) -> None:
    """Both rows of a run's heads: chosen on the gold, and by agreement with the best aligner."""
    from foveate.run import load

    loaded = load(folder, "last")
    pairs = [(" ".join(s), " ".join(t)) for s, t in hansards.gold_pairs()]
    true, rows = gold(), {}
    references = {"gold": true}
    if LINKS.exists():
        lines = LINKS.read_text().splitlines()
        references["agreement"] = [Gold(result, result) for result in map(read_pharaoh, lines)]
    for steps in ("produced", "read"):
        maps = list(loaded.task.word_maps(loaded.model, pairs, rows=steps, cut=split_blanks))
        for by, reference in references.items():
            best = choose(maps, reference, steps)[0][0]  # type: ignore[arg-type]
            result = [best.links(m) for m in maps]
            where = {"layer": best.layer, "head": best.head, "checkpoint": loaded.checkpoint}
            rows[f"{name}, {steps}, head by {by}"] = row(result, **where)
    add(rows)


def pairs_file(path: str) -> None:
    lines = (
        f"{' '.join(s)}\t{' '.join(t)}\n" for s, t in hansards.tatoeba() + hansards.gold_pairs()
    )
    Path(path).write_text("".join(lines), encoding="utf-8")


VERBS: dict[str, Callable[..., None]] = {
    "pairs": pairs_file,
    "aligners": lambda *names: aligners(names),
    "eflomal": eflomal,
    "run": run,
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in VERBS:
        raise SystemExit(__doc__)
    VERBS[sys.argv[1]](*sys.argv[2:])
