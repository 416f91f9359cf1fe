"""Trains as one of several ranks, for the tests of them.

python -m torch.distributed.run --standalone --nproc-per-node 2 tests/ranks_toy.py SCENES.json

The file lists scenes, played one after the other: ``folder`` and ``changes`` of a toy, or the
``config`` and ``overrides`` of a real run, or a ``command``; ``harm`` says what befalls which rank,
in which attempt, at which call of the loss. What came out goes to ``FOLDER/outcome-RANK.json``.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from foveate import cli
from foveate.run.training import train
from foveate.train.distributed import ranks_of
from train_toy import Toy, toy_config

HARMS: dict[str, Callable[[], object]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "hang": lambda: time.sleep(600),
}


@dataclass
class Scene:
    folder: str
    changes: dict[str, Any] = field(default_factory=dict)
    harm: list[dict[str, Any]] = field(default_factory=list)  # how, rank, attempt, what, number
    config: str | None = None
    overrides: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)  # of the command line

    def befall(self, rank: int) -> Callable[[str, int], None]:
        """The harm that comes to a rank in this attempt."""
        attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))

        def before(what: str, number: int) -> None:
            for harm in self.harm:
                if (rank, attempt) != (harm["rank"], harm.get("attempt", 0)):
                    continue
                if (what, number) == (harm.get("what", "loss"), harm["number"]):
                    HARMS[harm["how"]]()

        return before

    def play(self) -> int:
        if self.command:
            sys.argv = ["foveate", *self.command]
            with contextlib.suppress(SystemExit):
                cli.main()
            return 0
        if self.config is not None:
            train(self.config, self.overrides, self.folder)
            return 0
        config, folder = toy_config(**self.changes), Path(self.folder)
        with ranks_of(config) as ranks:
            before = self.befall(ranks.rank)
            outcome = Toy(folder, config, before).train(ranks=ranks)
            best = outcome.state.best and asdict(outcome.state.best)
            output = {"reason": outcome.reason, "exit_code": outcome.exit_code, "best": best}
            output["world"] = ranks.world
            (folder / f"outcome-{ranks.rank}.json").write_text(json.dumps(output), encoding="utf-8")
        return outcome.exit_code


if __name__ == "__main__":
    scenes = [Scene(**scene) for scene in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))]
    codes = [scene.play() for scene in scenes]
    sys.exit(codes[-1])
