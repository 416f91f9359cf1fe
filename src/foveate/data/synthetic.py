"""The embedded corpora: English sentences and their French translations.

``everyday`` are real sentences of up to 8 words, a selection of Tatoeba (tools/everyday.py, in the
repository; CC BY 2.0 FR, tatoeba.org and www.manythings.org/anki). A random grammar made the others
with gold word alignments (tools/embedded_corpus.py): ``short`` sentences of 3 to 25 words, and
``long`` ones of 3 to 60 words, all lengths about equally often. Their valid and test splits contain
pairs of words, an adjective or a verb with its noun, that never occur in training.
"""

from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from foveate.errors import UserError
from foveate.files import replace_file

SPLITS, ENDINGS = ("train", "valid", "test"), ("en", "fr", "align")
CORPORA = {"everyday": ENDINGS[:2], "short": ENDINGS, "long": ENDINGS}  # and the endings of each
EMBEDDED = Path(__file__).parent / "embedded"  # {corpus}/{split}.{ending}.bz2


def write(folder: Path, sizes: Mapping[str, int], corpus: str = "short") -> None:
    """Write ``{split}.en``, ``{split}.fr`` and, if the corpus has links, ``{split}.align``.

    There is a line for each pair; alignments are in Pharaoh format: ``0-0 1-2``. Each file is
    replaced atomically. Raises like `read_lines`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in sizes.items():
        for ending in CORPORA.get(corpus, ENDINGS):
            lines = read_lines(split, ending, count, corpus)
            replace_file(folder / f"{split}.{ending}", "".join(f"{line}\n" for line in lines))


def read_lines(split: str, ending: str, count: int, corpus: str = "short") -> list[str]:
    """Return the first ``count`` lines of a split: ``en``, ``fr`` or ``align``.

    A line with the source of the data is not counted. Raises `UserError` for a corpus or a split
    that does not exist, and for more pairs than it has.
    """
    path = EMBEDDED / corpus / f"{split}.{ending}.bz2"
    if corpus not in CORPORA or split not in SPLITS:
        raise UserError(
            f"the embedded corpora are {', '.join(CORPORA)}, with {', '.join(SPLITS)}; "
            f"{corpus} {split} does not exist"
        )
    import bz2  # some builds of Python lack it, and nothing else needs it

    with bz2.open(path, "rt", encoding="utf-8", newline="\n") as file:
        sentences = (line.removesuffix("\n") for line in file if not line.startswith("#"))
        lines = list(islice(sentences, count))
    if len(lines) < count:
        raise UserError(
            f"the embedded corpus has {len(lines):,} {corpus} pairs in {split}, not {count:,}; "
            "ask for fewer: tools/ in the repository has the generator"
        )
    return lines
