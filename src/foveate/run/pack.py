"""A run as a packed file, which the engine runs without PyTorch (`foveate.engine.packed`)."""

import json
import sys
from pathlib import Path
from subprocess import SubprocessError

from foveate.config import Tree
from foveate.engine import packed
from foveate.engine.links import Head
from foveate.engine.program import CannotPack, Program
from foveate.errors import UserError, message_of
from foveate.run import Run, load, packed_kind, reach_of
from foveate.tasks.abilities import Aligns
from foveate.tasks.classification import TextClassification
from foveate.tasks.shortlist import FILE, Shortlist
from foveate.tasks.text import TextToText
from foveate.tasks.translation import Translation
from foveate.train.stored import WEIGHTS, sha256

Tensors = dict[str, packed.Array]


def pack(run: Run, out: Path, precision: str = "fp32", licence: str = "") -> Path:
    """Write the packed file of a run, whole or not at all.

    The engine reads it before it is written. Raises `CannotPack` that names the part of the model,
    and `PackedError` the part of its search, that the engine does not have.
    """
    header, tensors = content(run, precision, licence)
    packed.PackedModel(out, header, tensors)
    return packed.write(out, header, tensors)


def keep(run: Run) -> str:
    """Write the packed file of a run into its folder; a sentence that says so, or why not.

    Where the engine cannot run the model, a file of an earlier checkpoint is removed.
    """
    file = run.path / packed.NAME
    try:
        pack(run, file)
    except (UserError, OSError, SubprocessError) as error:
        file.unlink(missing_ok=True)
        return f"no {packed.NAME}: {message_of(error)}"
    return f"{file}: {file.stat().st_size / 1e6:.1f} MB, which answer without PyTorch"


def renew(folder: Path) -> None:
    """Write the packed file of a run anew where it has one, since it holds what has changed."""
    if (folder / packed.NAME).is_file():
        keep(load(folder))


def content(run: Run, precision: str, licence: str = "") -> tuple[packed.Header, Tensors]:
    """Header and tensors of the packed file of a run. Raises `CannotPack`."""
    task, config = run.task, run.config
    if packed_kind(task) is None:
        raise CannotPack(
            f"the engine does not know the task {config.task.kind}; it runs in PyTorch"
        )
    program = Program(run.model)
    arrays = {name: tensor.cpu().numpy() for name, tensor in program.tensors.items()}
    tensors = packed.rounded(arrays, program.maps, precision)
    tree: Tree = {
        "version": packed.VERSION,
        "task": packed_kind(task),
        "program": program.numbers,
        "maps": sorted(program.maps),
        "attentions": program.attentions,
        "equations": program.equations,
        "tokenizers": {
            name: json.loads(each.text()) for name, each in task.tokenizers_by_name().items()
        },
        "max_length": config.data.max_length,
        "search": packed.PackedSearch.of(config.decode).tree(),
        "scores": scores_of(run),
        "licence": licence or config.data.licence,
        "made_of": made_of(run),
    }
    if isinstance(task, TextToText):
        parts = [part.tree() for part in task.config.parts()]
        names = ("source", "target", "tag")
        tree["corpora"] = [{n: part[n] for n in names if n in part} for part in parts]
        if config.data.format is not None:
            tree["format"] = config.data.format.tree()
    if isinstance(task, Aligns):
        tree["head"] = vars(Head.load(run.path, Head(*task.head)))
    if isinstance(task, Translation) and (run.path / FILE).is_file():
        tensors |= dict(zip(packed.SHORTLIST, Shortlist.load(run.path).arrays, strict=True))
    if isinstance(task, TextClassification):
        tree["labels"] = task.label_names
    if (reach := reach_of(task, run.model)) is not None:
        tree["reach"] = reach
    return packed.Header.parse(json.loads(json.dumps(tree))), tensors


def scores_of(run: Run) -> Tree:
    """The figures that made the checkpoint the best one, where it is."""
    path = run.path / "best.json"
    if not path.is_file():
        return {}
    record = json.loads(path.read_bytes())
    own = record.get("folder") == run.checkpoint
    return {name: value for name, value in record.items() if name != "folder"} if own else {}


def made_of(run: Run) -> dict[str, str]:
    """Return run, checkpoint and weights that a file is made of, without a path."""
    return {
        "run": run.path.resolve().name,
        "checkpoint": run.checkpoint,
        "sha256": sha256(run.path / run.checkpoint / WEIGHTS),
        "foveate": str(sys.modules["foveate"].__version__),
    }
