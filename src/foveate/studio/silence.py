"""Heads that are silenced while a question is answered: from blocks and layers to modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from foveate.look.capture import block_of, tails
from foveate.look.edit import edit, silence
from foveate.nn.attention import BaseAttention
from foveate.run import Run
from foveate.studio.asking import Head
from foveate.studio.errors import Refused


def places(run: Run, heads: Sequence[Head]) -> dict[str, list[int]]:
    """The silenced heads of each attention by its dotted name.

    Raises `Refused` naming what exists.
    """
    blocks: dict[str, list[str]] = {}
    for name, module in run.model.named_modules():
        if isinstance(module, BaseAttention):
            blocks.setdefault(block_of(name), []).append(name)
    found: dict[str, list[int]] = {}
    for head in heads:
        names = [n for block in blocks if head.block in tails(block) for n in blocks[block]]
        if not -len(names) <= head.layer < len(names):
            known = ", ".join(f"{block} ({len(names)})" for block, names in blocks.items())
            message = f"no layer {head.layer} of {head.block!r}"
            raise Refused(422, "no_head", message, f"blocks and their layers: {known or 'none'}")
        name = names[head.layer]
        count = run.model.get_submodule(name).num_heads
        if head.head is not None and head.head >= count:
            raise Refused(422, "no_head", f"{name} has no head {head.head}", f"it has {count}")
        every = list(range(count)) if head.head is None else [head.head]
        found[name] = sorted({*found.get(name, []), *every})
    return found


@contextmanager
def silenced(run: Run, heads: Sequence[Head]) -> Iterator[None]:
    """The run with some heads silenced: they add nothing."""
    changes = {name: silence(*chosen) for name, chosen in places(run, heads).items()}
    with edit(run.model, changes):
        yield
