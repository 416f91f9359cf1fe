"""Published architectures by name, as configs: the tables of ``presets.toml``.

A preset is a kind whose fields have other defaults; it is written like a config.
"""

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import create_model

from foveate.config import Config, Tree, kinds
from foveate.models import (  # noqa: F401  they register the kinds that presets are of
    classic,
    classifier,
    language_model,
    recurrent,
    transformer,
    vision,
)


def preset(name: str, table: Tree) -> type[Config]:
    """Register the kind of a table: the kind ``of`` with the table's values as defaults."""
    family, meaning = table.pop("family", "model"), table.pop("meaning")
    parent, differs = kinds(family)[family][table.pop("of")], table.pop("differs", "")
    if both := table.pop("both", {}):
        table |= {side: both | table.get(side, {}) for side in ("encoder", "decoder")}
    values, fields = parent.parse(table, (name,)), parent.model_fields
    types = {key: Annotated[(fields[key].annotation, *fields[key].metadata, name)] for key in table}
    changed: Tree = {key: (types[key], getattr(values, key)) for key in table}
    create_model(
        name, __base__=parent, __doc__=meaning, __module__=__name__,
        __cls_kwargs__={"kind": name}, **changed,
    )  # fmt: skip
    own = kinds(family)[family][name]
    setattr(own, "differs", differs)  # noqa: B010  as the class of a kind does
    return own


_TABLES = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))
PRESETS = {name: preset(name, table) for name, table in _TABLES.items()}
globals().update(PRESETS)  # pickle finds a class by its name in its module
