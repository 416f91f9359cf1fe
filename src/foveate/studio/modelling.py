"""A model as a picture of blocks: what each does, its parameters, the shape of what it gives.

Shapes are those of one example that goes through the model; what it does not go through has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from foveate.errors import is_for_the_user
from foveate.look.drawing import ModelDrawing, Module
from foveate.run import Run
from foveate.views import examples
from foveate.views.question import Question


def drawing(run: Run) -> ModelDrawing:
    """The blocks of a run's model, in the order in which they were made."""
    notes = []
    with shapes(run.model) as found:
        try:
            run.explain(examples.source(run, Question()))
        except Exception as error:
            if not is_for_the_user(error):
                raise
            notes.append(f"no shapes: {error}")
    total = sum(parameter.numel() for parameter in run.model.parameters())
    kind = run.config.model.kind
    return ModelDrawing(
        title=f"{run.path.name}: {kind}, {total:,} parameters",
        caption="shapes are of one example; a part that is shared counts where it is first",
        notes=notes,
        parts=_parts(run.model, "", found, set()),
    )


def _parts(model: nn.Module, prefix: str, found: dict[str, str], seen: set[int]) -> list[Module]:
    """The parts of a module that have parameters, or give something of their own shape."""
    parts = []
    for name, child in model.named_children():
        place = f"{prefix}{name}"
        inner = _parts(child, f"{place}.", found, seen)
        own = 0
        for parameter in child.parameters(recurse=False):
            own += 0 if id(parameter) in seen else parameter.numel()
            seen.add(id(parameter))
        count = own + sum(part.parameters for part in inner)
        if count or inner or place in found:
            parts.append(
                Module(
                    name=name,
                    does=_does(child),
                    parameters=count,
                    output=found.get(place, ""),
                    parts=inner,
                )
            )
    return parts


def _does(module: nn.Module) -> str:
    """The kind of a module, and its sizes where they are those of torch."""
    words = type(module).__name__
    sizes = module.extra_repr() if type(module).__module__.startswith("torch.nn") else ""
    return f"{words}({sizes})" if sizes else words


@contextmanager
def shapes(model: nn.Module) -> Iterator[dict[str, str]]:
    """The shape of what each module gave last, by its dotted name."""
    found: dict[str, str] = {}

    def seeing(name: str) -> Any:
        def see(module: nn.Module, inputs: Any, output: Any) -> None:
            tensor = next(_tensors(output), None)
            if tensor is not None:
                found[name] = " × ".join(map(str, tensor.shape))

        return see

    handles = [module.register_forward_hook(seeing(name)) for name, module in model.named_modules()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _tensors(output: Any) -> Iterator[Tensor]:
    """The tensors in what a module gave, at any depth of tuples and of things with fields."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, tuple | list):
        for part in output:
            yield from _tensors(part)
    elif hasattr(output, "__dataclass_fields__"):
        for name in output.__dataclass_fields__:
            yield from _tensors(getattr(output, name))
