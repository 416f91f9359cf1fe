"""Write the gallery: pages in which small models answer, each one HTML file (`foveate publish`).

    python tools/gallery.py [PAGE …] [--work build/gallery] [--out build/gallery]    (make gallery)

`translators` are the runs that ship with attention and without it, of the same data; `characters`
is a language model of Shakespeare's characters; `kinds` the classifier that ships; `sentiment` one
of reviews. `characters` and `sentiment` are trained first, as tools/gallery.toml says (minutes),
unless the folder of work has their runs. Nobody states a licence of the data of `sentiment`: its
page is for whoever makes it, and `kinds` stands for it in a gallery that is given to others.
"""

from __future__ import annotations

import argparse
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from foveate.config import PACKAGED, parse_tree
from foveate.data.catalogue import find
from foveate.data.text import decoded_lines
from foveate.files import replace_file
from foveate.run import RunConfig
from foveate.run.training import train
from foveate.studio.publish import PublishedFile, packed_run, publish

SETTINGS = Path(__file__).with_suffix(".toml")
PAGES = {  # titles, and the runs of each
    "translators": ("With attention and without", ("en-fr", "no-attention")),
    "characters": ("Shakespeare, character by character", ("characters",)),
    "kinds": ("Question, statement or negation", ("kinds-of-sentences",)),
    "sentiment": ("Sentiment of a review", ("sentiment",)),
}
LICENCES = {
    "characters": "plays of William Shakespeare (public domain), collected by Andrej Karpathy",
    "sentiment": "SST-2 (Socher et al., 2013), no licence stated: not for others",
}
SENTIMENTS = {"0": "negative", "1": "positive"}


def write_reviews(folder: Path) -> None:
    """The splits of SST-2 with the names of their labels."""
    for split in ("train", "dev", "test"):
        pairs = (line.rsplit("\t", 1) for line, _ in decoded_lines(find(f"sst2/{split}.tsv")))
        text = "".join(f"{sentence}\t{SENTIMENTS[label]}\n" for sentence, label in pairs)
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / f"{split}.tsv", text.encode())


def run_of(name: str, work: Path) -> Path:
    """A run that ships, or one in the folder of work, which is trained where it is not there."""
    if (PACKAGED / name).is_dir():
        return PACKAGED / name
    if not (work / name / "best.json").is_file():
        if name == "sentiment":
            write_reviews(work / "reviews")
        text = SETTINGS.read_text("utf-8").replace("{folder}", (work / "reviews").as_posix())
        train(parse_tree(RunConfig, tomllib.loads(text)[name]), folder=work / name)
    return work / name


def main(names: Sequence[str], work: Path, out: Path) -> None:
    """Write the pages of these names, or all."""
    out.mkdir(parents=True, exist_ok=True)
    for name in names or PAGES:
        title, models = PAGES[name]
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for model in models:
                run, place = run_of(model, work), Path(folder) / f"{model}.safetensors"
                file = packed_run(run, place, "int8", LICENCES.get(model, ""))
                files.append(PublishedFile(file, model, run))
            size = publish(files, page := out / f"{name}.html", title)
        print(f"{page}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("names", nargs="*", metavar="PAGE")
    options.add_argument("--work", type=Path, default=Path("build/gallery"), help="trainings")
    options.add_argument("--out", type=Path, default=Path("build/gallery"), help="pages")
    chosen = options.parse_args()
    if unknown := set(chosen.names) - PAGES.keys():
        options.error(f"no page {min(unknown)}; there are: {', '.join(PAGES)}")
    main(chosen.names, chosen.work.resolve(), chosen.out)
