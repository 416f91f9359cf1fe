"""Forced passes of small models whose answer is known, for tests of what looks inside them."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from foveate.data.tokenizer import BOS, EOS
from foveate.decode.search import token_log_probabilities
from foveate.look.hooks import ForcedPass
from foveate.look.records import AttentionRecord, Maps, Units
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.language_model import LanguageModel
from foveate.models.recurrent import RecurrentAttention, RecurrentDecoder, RecurrentEncoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.spec import Tokens


def labels(ids: Tensor) -> list[str]:
    return [*map(name, ids.tolist())]


def name(i: int) -> str:
    return {BOS: "<s>", EOS: "</s>"}.get(i, f"w{i}")


def translating(model: Any, source: Tensor, target: Tensor) -> ForcedPass:
    """One pair of ids, (S,) and (T,), as a task would make it ready."""
    read, before = F.pad(source, (0, 1), value=EOS), F.pad(target, (1, 0), value=BOS)
    expected = F.pad(target, (0, 1), value=EOS)

    def run() -> Tensor:
        return token_log_probabilities(model(read[None], before[None]), expected[None])[0]

    def label(maps: Maps, units: Units) -> AttentionRecord:
        sides = {"encoder.self_attention": labels(read), "self_attention": labels(before)}
        rows = {"encoder.self_attention": labels(read), "": labels(expected)}
        return AttentionRecord(dict(maps), rows, sides | {"": labels(read)})

    known = {"encoder": labels(read), "decoder": labels(before)}
    return ForcedPass(model, run, label, labels(expected), known, token=name)


def reading(
    model: Any, read: Tensor, expected: Tensor, predict: Callable[[Tensor], Tensor], **fields: Any
) -> ForcedPass:
    """Ids (T,), each of them predicted from those that a model of language has read."""

    def run() -> Tensor:
        return token_log_probabilities(predict(read[None]), expected[None])[0]

    def label(maps: Maps, units: Units) -> AttentionRecord:
        return AttentionRecord(dict(maps), {"": labels(expected)}, {"": labels(read)})

    known = {"decoder": labels(read)}
    return ForcedPass(model, run, label, labels(expected), known, token=name, **fields)


def language(model: Any, text: Tensor) -> ForcedPass:
    """A text of ids (T,), each of them predicted from those before it."""
    return reading(model, F.pad(text, (1, 0), value=BOS), F.pad(text, (0, 1), value=EOS), model)


def language_model(**fields: Any) -> LanguageModel:
    sizes: dict[str, Any] = {"hidden_size": 16, "num_heads": 2, "num_layers": 3, "ffn_size": 24}
    config = LanguageModel.Config(decoder=TransformerDecoder.Config(**sizes | fields))
    model: LanguageModel = config.build(Tokens(20)).eval()
    return model


def built(encoder: Any, decoder: Any) -> EncoderDecoder:
    config = EncoderDecoder.Config(encoder=encoder, decoder=decoder)
    return config.build(Tokens(20), Tokens(20)).eval()


def transformer(**encoder: Any) -> EncoderDecoder:
    sizes: dict[str, Any] = {"hidden_size": 16, "num_heads": 2, "num_layers": 2, "ffn_size": 8}
    own = TransformerEncoder.Config(**sizes | encoder)
    return built(own, TransformerDecoder.Config(**sizes))


def recurrent(**encoder: Any) -> EncoderDecoder:
    sizes: dict[str, Any] = {"embedding_size": 8, "hidden_size": 8}
    decoder = RecurrentDecoder.Config(**sizes, attention=RecurrentAttention())
    return built(RecurrentEncoder.Config(**sizes | encoder), decoder)
