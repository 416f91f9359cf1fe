"""Installed models: the packed files of the package foveate-models, by name."""

from importlib.util import find_spec
from pathlib import Path

from foveate.errors import ConfigError, install

PACKAGE = "foveate_models"


def installed() -> dict[str, Path]:
    """Return the packed file of each installed model."""
    spec = find_spec(PACKAGE)
    folders = [] if spec is None else map(Path, spec.submodule_search_locations or ())
    files = (file for folder in folders for file in folder.glob("files/*.safetensors"))
    return {file.stem: file for file in sorted(files)}


def named(path: Path) -> tuple[Path, str]:
    """Resolve a path, with a remark: the path itself if it exists, or an installed model's file.

    Raises ``ConfigError`` for a bare name that is neither; any other path is left to the caller.
    """
    name = str(path)
    if path.name != name or name in (".", ".."):
        return path, ""
    models = installed()
    if path.exists():
        both = f"{name} is the one in this folder, not the installed model of that name"
        return path, both if name in models else ""
    if name in models:
        return models[name], ""
    from foveate.config import PACKAGED

    small = f"; or take packaged/{name}" if (PACKAGED / name).is_dir() else ""
    there = f"installed are {', '.join(models)}" if models else "none is"
    raise ConfigError(
        f"{name}: no run or file of that name is here, and no such model is installed ({there}); "
        f"make a run: foveate train; models: {remedy()}{small}"
    )


def remedy() -> str:
    """Return how to install the models: from an index, or from the wheel that a checkout builds."""
    line = install("models")
    made = "in a checkout of foveate: make models && pip install dist/foveate_models-*.whl"
    return made if line.startswith("in a checkout") else line
