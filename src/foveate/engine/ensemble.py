"""Several trained models as one: which are compatible, and how they decode together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from torch import Tensor, nn

from foveate.decode.constraints import Steps
from foveate.decode.search import EnsembleSteps, log_mean_p
from foveate.errors import UserError
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.language_model import LanguageModel

Vocabularies = Mapping[str, Sequence[str]]  # the tokens of each part of a model by their ids


class Ensemble(nn.Module):
    """Models of any kinds that read the same tokens, and answer with the mean of their p.

    Raises `UserError` where one reads source and target apart and another joined.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        for family in (EncoderDecoder, LanguageModel):
            if 0 < sum(isinstance(member, family) for member in members) < len(members):
                raise UserError("an encoder–decoder and a language model decode no text together")
        self.members = nn.ModuleList(members)

    @property
    def output(self) -> nn.Linear:
        """The output projection of the first member; it says where all compute."""
        return cast(EncoderDecoder, self.members[0]).output

    def forward(self, *inputs: Tensor | None) -> Tensor:
        """Log of the mean p of every next token (B, T, V)."""
        return log_mean_p([member(*inputs) for member in self.members])

    def decode(self, *inputs: object) -> Tensor:
        """Refuse: members have states and attention of their own. Raises `UserError`."""
        raise UserError(
            "several models that decode together have no one map to draw; look at a run by itself"
        )

    encode = decode


def steps_of(model: nn.Module, begin: Callable[[nn.Module], Steps]) -> Steps:
    """The steps that ``begin`` makes of a model, or of all members of an ensemble together."""
    if not isinstance(model, Ensemble):
        return begin(model)
    return EnsembleSteps([begin(member) for member in model.members])


def together(
    vocabularies: Sequence[Vocabularies], models: Sequence[nn.Module], names: Sequence[str]
) -> Ensemble:
    """The models of several runs as one. Raises ``ConfigError`` where they read other tokens."""
    first, *others = vocabularies
    for other, name in zip(others, names[1:], strict=True):
        check_pieces(first, other, (names[0], name))
    return Ensemble(models).eval()


def check_pieces(own: Vocabularies, other: Vocabularies, names: tuple[str, str]) -> None:
    """Raise `UserError` where two runs read other tokens, with what differs and the remedy.

    ``own`` and ``other`` are the tokens of each part of a model by their ids, ``names`` the runs.
    """
    for part, pieces in own.items():
        others = other.get(part, [])
        if list(pieces) == list(others):
            continue
        differs = f"{len(pieces):,} and {len(others):,} tokens in the {part}"
        if len(pieces) == len(others):
            row = next(
                i for i, both in enumerate(zip(pieces, others, strict=True)) if len(set(both)) > 1
            )
            differs += f", and token {row} is {pieces[row]!r} and {others[row]!r}"
        raise UserError(
            f"{names[0]} and {names[1]} cannot decode together: they have {differs}; give them one "
            "vocabulary: the same task, data and seed, or the tokens of the first run by [start]"
        )
