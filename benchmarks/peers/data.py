"""The data of the comparison, written once: the same pieces for everyone, in the forms they read.

``{train,val,test}.{src,tgt}`` hold the pieces of a sentence between blanks, ``vocabulary.txt`` a
piece on each line, the line number from 0 being its id. What a peer wants else is made of these.
"""

from __future__ import annotations

import json
from pathlib import Path

from foveate.measure.training import workload

SPLITS = {"train": "train", "valid": "val", "test": "test"}
MOST = 1000  # sentences of the test data


def write(folder: Path) -> dict[str, object]:
    """Write the data into ``folder``, unless they are there; what they are."""
    output = folder / "data.json"
    if output.is_file():
        return dict(json.loads(output.read_text(encoding="utf-8")))
    folder.mkdir(parents=True, exist_ok=True)
    counts = {}
    with workload("small") as work:
        pieces = work.task.source_tokenizer.pieces
        for split, name in SPLITS.items():
            corpus = work.task.corpus(split)
            most = MOST if split == "test" else len(corpus.sources)
            for side, texts in (("src", corpus.sources), ("tgt", corpus.targets)):
                sentences = work.task.source_tokenizer.encode_ids(list(texts[:most]))
                lines = (" ".join(pieces[i] for i in ids) for ids in sentences)
                (folder / f"{name}.{side}").write_text(
                    "".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n"
                )
            counts[name] = len(sentences)
        data = work.data
    text = "".join(f"{piece}\n" for piece in pieces)
    (folder / "vocabulary.txt").write_text(text, encoding="utf-8", newline="\n")
    _forms(folder, pieces)
    result = {"data": data, "vocabulary": len(pieces), "pairs": counts}
    output.write_text(json.dumps(result), encoding="utf-8", newline="\n")
    return result


def _forms(folder: Path, pieces: list[str]) -> None:
    """Vocabularies as the peers read them."""
    own = pieces[4:]  # without <unk> <pad> <s> </s>, which they have themselves
    (folder / "joey-vocabulary.txt").write_text(
        "".join(f"{p}\n" for p in pieces), encoding="utf-8", newline="\n"
    )
    counted = "".join(f"{piece}\t1\n" for piece in own)
    (folder / "onmt-vocabulary.txt").write_text(counted, encoding="utf-8", newline="\n")
