"""Export a run as one folder with all it needs: weights, config, tokenizers. It is a run itself.

    foveate.load("folder").translate(["A black dog runs."])

This supports any task and any model.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch

from foveate.exchange.base import Checked, CheckSample, Different, ExchangeError, Export
from foveate.files import replace_file
from foveate.run import load
from foveate.tasks.translation import Translation
from foveate.train.stored import WEIGHTS, save_weights, sealed_folder

LOGS = ("log.jsonl", "best.json")  # of training
FOLDER = "weights"


class Safetensors(Export):
    """A folder with the weights of one checkpoint and the files of the run needed to use them."""

    to = "safetensors"
    packages = ("safetensors",)

    def rewritten(self) -> Iterable[object]:
        return ()

    def refuse(self) -> None:
        pass

    def write(self, place: Path, pointer: dict[str, object]) -> None:
        place.mkdir()
        for path in sorted(self.run.path.iterdir()):
            if path.is_file() and path.name not in LOGS and not path.name.startswith("."):
                if not path.resolve().is_relative_to(self.run.path.resolve()):
                    raise ExchangeError(f"{path} is a link to {path.resolve()}, outside the run")
                shutil.copyfile(path, place / path.name)
        with sealed_folder(place / FOLDER) as folder:
            save_weights(self.run.model, folder / WEIGHTS)
        best = {"folder": FOLDER, "figure": "exported", "value": 0.0, "step": 0}
        replace_file(place / "best.json", json.dumps(best, indent=1) + "\n")

    def check(self, place: Path, sample: CheckSample) -> Checked:
        again = load(place)
        both = self.run.model.state_dict(), again.model.state_dict()
        wrong = [n for n in both[0] if not torch.equal(both[0][n].cpu(), both[1][n].cpu())]
        if wrong:
            raise Different(f"the weights {wrong[:3]} read back differently; nothing was written")
        sources = sample.sources if isinstance(self.run.task, Translation) else []
        ours, theirs = (
            [str(answer) for answer in run.translate(sources, beam_size=1)] if sources else []
            for run in (self.run, again)
        )
        if ours != theirs:
            raise Different("the folder translates differently; nothing was written")
        return Checked(len(ours), [f"{len(both[0])} tensors bit for bit"])
