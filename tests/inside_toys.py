"""Forced passes of small models whose answer is known, for tests of what looks inside them."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.data.tokenizer import BOS, EOS
from foveate.decode.search import token_log_probabilities
from foveate.look.hooks import ForcedPass
from foveate.look.records import AttentionRecord, Maps, Units
from foveate.models.language_model import LanguageModel
from foveate.models.transformer import TransformerDecoder
from foveate.nn.spec import Tokens


def labels(ids: Tensor) -> list[str]:
    return [{BOS: "<s>", EOS: "</s>"}.get(i, f"w{i}") for i in ids.tolist()]


def translating(model: Any, source: Tensor, target: Tensor) -> ForcedPass:
    """One pair of ids, (S,) and (T,), as a task would make it ready."""
    read, before = F.pad(source, (0, 1), value=EOS), F.pad(target, (1, 0), value=BOS)
    expected = F.pad(target, (0, 1), value=EOS)

    def run() -> Tensor:
        return token_log_probabilities(model(read[None], before[None]), expected[None])[0]

    def label(maps: Maps, units: Units) -> AttentionRecord:
        rows = {n: labels(read if n.startswith("encoder") else expected) for n in maps}
        columns = {n: labels(before if n.endswith("self_attention") else read) for n in maps} | {
            n: labels(read) for n in maps if n.startswith("encoder")
        }
        return AttentionRecord(dict(maps), rows, columns)

    return ForcedPass(
        model, run, label, labels(expected), {"encoder": labels(read), "decoder": labels(before)},
        token=lambda i: labels(torch.tensor([i]))[0],
    )  # fmt: skip


def language(model: Any, text: Tensor) -> ForcedPass:
    """A text of ids (T,), each of them predicted from those before it."""
    read, expected = F.pad(text, (1, 0), value=BOS), F.pad(text, (0, 1), value=EOS)

    def run() -> Tensor:
        return token_log_probabilities(model(read[None]), expected[None])[0]

    def label(maps: Maps, units: Units) -> AttentionRecord:
        return AttentionRecord(dict(maps), {"": labels(expected)}, {"": labels(read)})

    return ForcedPass(
        model, run, label, labels(expected), {"decoder": labels(read)},
        token=lambda i: labels(torch.tensor([i]))[0],
    )  # fmt: skip


def language_model(**fields: Any) -> LanguageModel:
    sizes: dict[str, Any] = {"hidden_size": 16, "num_heads": 2, "num_layers": 3, "ffn_size": 24}
    config = LanguageModel.Config(decoder=TransformerDecoder.Config(**sizes | fields))
    model: LanguageModel = config.build(Tokens(20)).eval()
    return model
