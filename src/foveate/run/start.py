"""Beginning with the weights of another run: fine-tuning.

    [start]
    run = "runs/masked"
    parts = ["encoder"]

A new run takes the tokenizers of that run (`foveate.tasks.base.Task.inherit`) and copies of the
weights of the named parts; all other weights begin as they would without it. The
run is loaded by `foveate.run.training`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Config, ConfigError
from foveate.tasks.abilities import vocabulary_of
from foveate.tasks.base import AnyTask

Pieces = Mapping[str, Sequence[str]]  # parts of a model, and the tokens of their tables by ids
State = Mapping[str, Tensor]  # the state of a model, each tensor under all its names


class Start(Config):
    """From which run a new one begins; ``parts`` are dotted names in the model, none means all.

    ``vocabulary`` says whose tokens the new run reads: "same", those of the run that it starts
    from; "extend", those and new ones of its own data; "replace", those of its own data alone.
    Tokens that both runs have keep their vectors. A new one begins with the mean of the known ones
    that it can be divided into, or with the vector of its relative in ``like``.
    """

    run: str  # folder of the run whose weights are taken
    checkpoint: str = "best"  # best, last, average or a step
    parts: tuple[str, ...] = ()  # names of the modules that are taken; all where absent
    vocabulary: Literal["same", "extend", "replace"] = "same"
    """The same, extended by new tokens, or replaced."""
    like: Mapping[str, str] = Field(default_factory=dict)
    """New tokens that begin with the vector of another, such as the tag of a related language."""


def check_size(start: Start, earlier: BaseConfig, task: BaseConfig) -> None:
    """Raise ``ConfigError`` where a task's config asks for a vocabulary of another size by name,
    or joins two vocabularies, or divides one.
    """
    joint, own = (dict(each).get("joint") for each in (earlier, task))
    if joint is not None and own is not None and joint != own:
        why = f"{start.run} has joint = {str(joint).lower()}: leave it out here"
        raise ConfigError(why, ("task", "joint"))
    if start.vocabulary == "extend":
        return
    old, new = (dict(task).get("tokenizer") for task in (earlier, task))
    if not isinstance(new, Config) or "vocab_size" not in new.model_fields_set:
        return
    sizes = [dict(tokenizer or ()).get("vocab_size") for tokenizer in (old, new)]
    if sizes[0] != sizes[1]:
        raise ConfigError(
            f"{start.run} has vocab_size = {sizes[0]}, and {sizes[1]} is asked for here: leave it "
            'out to read the same tokens, or set start.vocabulary = "extend" or "replace"',
            ("task", "tokenizer", "vocab_size"),
        )


def begin(
    start: Start, earlier: nn.Module, model: nn.Module, tasks: tuple[AnyTask, AnyTask]
) -> str:
    """Copy from the model of an earlier run; return a sentence that says what was taken.

    ``tasks`` are those of the earlier run and of this one. Raises ``ConfigError`` where the parts
    do not fit.
    """
    state: dict[str, Tensor] = earlier.state_dict()
    if start.vocabulary == "same":
        return copy_parts(start, state, model) + _other_settings(start, earlier, model)
    theirs, ours = (vocabulary_of(task).pieces() for task in tasks)
    if odd := sorted(set(start.like.values()) - {p for each in theirs.values() for p in each}):
        raise ConfigError(f"{start.run} has no token {odd[0]!r}", ("start", "like"))
    rows = by_pieces(state, model.state_dict(), theirs, ours, start.like)
    summary = copy_parts(start, rows, model) + _other_settings(start, earlier, model)
    known = {part: len(set(theirs[part]) & set(ours[part])) for part in theirs if part in ours}
    taken = ", ".join(f"{part} {n:,} of {len(ours[part]):,}" for part, n in known.items())
    return f"{summary}; tokens known from there: {taken}"


def by_pieces(
    earlier: State, own: State, theirs: Pieces, ours: Pieces, like: Mapping[str, str] | None = None
) -> State:
    """Return the state of another model with table rows for this model's tokens, in their order.

    ``theirs`` and ``ours`` are the tokens of each part by their ids. A row is the mean of the rows
    of the tokens there that a token divides into: itself if it is there, or its relative in
    ``like``. If it cannot be divided, it is the row that this model has now.
    """
    state = dict(earlier)
    for part in filter(ours.__contains__, theirs):
        known = {piece: row for row, piece in enumerate(_distinct(theirs[part]))}
        own_pieces = _distinct(ours[part])
        divided = [_divided((like or {}).get(piece, piece), known) for piece in own_pieces]
        rows = [(row, ks[0]) for row, ks in enumerate(divided) if len(ks) == 1]
        several = [(row, ks) for row, ks in enumerate(divided) if len(ks) > 1]
        own_rows, their_rows = torch.tensor(rows, dtype=torch.long).reshape(-1, 2).unbind(1)
        for name in _of(earlier, (part,)) & own.keys():
            is_table = part == "output" or name.endswith("embedding.weight")
            alike = earlier[name].shape[1:] == own[name].shape[1:]  # else `copy_parts` says so
            if is_table and alike and earlier[name].shape[0] == len(theirs[part]):
                state[name] = own[name].clone()
                state[name][own_rows] = earlier[name][their_rows]
                for row, ks in several:
                    state[name][row] = earlier[name][ks].mean(dim=0)
    return state


def _distinct(pieces: Sequence[str]) -> list[str]:
    """Return the pieces; those that occurred before, as `SPECIALS` may, get a number."""
    seen, result = Counter[str](), list[str]()
    for piece in pieces:
        result.append(f"{piece}\0{seen[piece]}" if seen[piece] else piece)
        seen[piece] += 1
    return result


def _divided(piece: str, known: Mapping[str, int]) -> list[int]:
    """Return the rows of the longest known pieces that make up a piece; none if one is missing."""
    if piece in known or piece[:1] + piece[-1:] == "<>":  # a tag is never divided
        return [known[piece]] if piece in known else []
    rows, start = list[int](), 0
    while start < len(piece):
        ends = range(len(piece), start, -1)
        end = next((end for end in ends if piece[start:end] in known), None)
        if end is None:
            return []
        rows.append(known[piece[start:end]])
        start = end
    return rows


def copy_parts(start: Start, earlier: State, model: nn.Module) -> str:
    """Copy the weights of the parts into ``model``; a sentence that says how many were taken.

    Raises ``ConfigError`` where a part is not there, or a tensor has another name or shape; no
    weight has changed then.
    """
    own: dict[str, Tensor] = model.state_dict()
    for part in start.parts:
        for state, whose in ((earlier, start.run), (own, "this model")):
            if not _of(state, (part,)):
                known = ", ".join(dict.fromkeys(name.partition(".")[0] for name in state))
                why = f"{whose} has no {part!r}; there are {known}, and what is in them"
                raise ConfigError(why, ("start", "parts"))
    needed, there = _of(own, start.parts), _of(earlier, start.parts)
    if needed != there:
        few, many = sorted(needed - there), sorted(there - needed)
        raise ConfigError(
            f"{start.run} belongs to another model: it lacks {few[:3] or 'nothing'} and has "
            f"{many[:3] or 'nothing'} besides; make the parts equal, or name fewer in start.parts",
            ("start", "run"),
        )
    for name in sorted(needed):
        if earlier[name].shape != own[name].shape:
            raise ConfigError(_unlike(start, name, earlier[name], own[name]), ("start", "run"))
    with torch.no_grad():
        for name in needed:
            own[name].copy_(earlier[name])
    copied = {own[name].data_ptr(): own[name].numel() for name in needed}  # tied ones once
    parts = ", ".join(start.parts) or "everything"
    return f"started from {start.run}: {parts}, {sum(copied.values()):,} weights"


def _other_settings(start: Start, earlier: nn.Module, model: nn.Module) -> str:
    """Return the settings of the copied parts that differ though their weights fit, as a sentence.

    Raises ``ConfigError`` where heads differ, which share the weights in another way.
    """
    theirs, differing = dict(earlier.named_modules()), dict[str, str]()
    for name in _of(own := dict(model.named_modules()), start.parts):
        configs = [getattr(module, "config", None) for module in (theirs.get(name), own[name])]
        old, new = ({} if config is None else config.tree() for config in configs)
        for key in sorted(old.keys() & new.keys()):
            if old[key] == new[key] or "dropout" in key or isinstance(new[key], dict):
                continue
            values = f"{old[key]} in {start.run} and {new[key]} here"
            if key in ("num_heads", "key_heads"):
                why = f"{name}.{key} is {values}: set the value of that run, or leave the part out"
                raise ConfigError(why, ("start", "parts"))
            differing[key] = values
    differences = [f"{key} is {values}" for key, values in differing.items()]
    return "".join(f"; {each}" for each in differences[:4])


def _of(state: Iterable[str], parts: tuple[str, ...]) -> set[str]:
    """The names that belong to some parts; all of them where no part is named."""
    inside = tuple(f"{part}." for part in parts)
    return {name for name in state if not parts or name in parts or name.startswith(inside)}


def _unlike(start: Start, name: str, earlier: Tensor, own: Tensor) -> str:
    """Why two tensors of one name do not fit, and what to do."""
    shapes = f"{name} is {tuple(earlier.shape)} in {start.run} and {tuple(own.shape)} here"
    if earlier.shape[1:] == own.shape[1:] and ("embedding" in name or name.startswith("output")):
        return (
            f"{shapes}: {len(earlier):,} tokens or labels there, {len(own):,} here; read the same "
            "tokens (the tokenizer of that run), leave the part out of start.parts, or for tokens "
            'keep the vectors of those that both have: start.vocabulary = "extend" or "replace"'
        )
    return f"{shapes}; give the part the sizes that {start.run}/config.toml has"
