"""Every registered kind at a size for laws: attentions, models, and ids to give them.

A new kind is found in the registry and stands in every law without more code.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foveate.config import Config, kinds
from foveate.kinds import load_kinds
from foveate.look.hooks import capture
from foveate.measure.laws.models import untried
from foveate.models.classifier import Classifier
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.interleaved import InterleavedDecoder
from foveate.models.mamba import MambaDecoder, MambaEncoder, SSRUDecoder
from foveate.models.recurrent import RecurrentAttention, RecurrentDecoder, RecurrentEncoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.attention import Attention
from foveate.nn.context import Mask
from foveate.nn.efficient_attention import SparseAttention
from foveate.nn.linear import LayerNorm, RMSNorm
from foveate.nn.native import kernels as fused_module
from foveate.nn.normalizers import choices
from foveate.nn.positions import Rotary
from foveate.nn.recurrent import LSTMCell
from foveate.nn.spec import Labels, Tokens
from foveate.train.stored import load_weights, own_tensors, write_tensors
from tolerances import differ
from variants import at_scale

load_kinds()

VOCABULARY, SIZE = 30, 16
SIZES: dict[str, int | float] = {
    "embedding_size": 12, "hidden_size": SIZE, "ffn_size": 20, "max_length": 24, "dropout": 0.0,
    "window": 3, "block_size": 2, "rank": 8, "features": 12,
}  # fmt: skip
LIMITS = {"num_layers": 2, "num_heads": 4}
GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that PyTorch can use is here"),
]
DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]


def shrink(config: Config) -> Any:
    """The same config with small sizes and without dropout."""
    changes: dict[str, Any] = {}
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, Config):
            changes[name] = shrink(value)
        elif name in LIMITS and isinstance(value, int):
            changes[name] = min(value, LIMITS[name])
        elif name in SIZES:
            changes[name] = SIZES[name]
    return config.model_copy(update=changes)


def defaults(family: str) -> dict[str, Any]:
    """Every kind of a family that needs nothing said, with small sizes."""
    members = kinds(family)[family].items()
    return {
        name: shrink(config())
        for name, config in members
        if not any(field.is_required() for field in config.model_fields.values())
        and not untried(config())  # pictures and series have laws of their own
    }


def each(family: str) -> pytest.MarkDecorator:
    """Parametrise ``config`` over the kinds of a family."""
    result = defaults(family)
    return pytest.mark.parametrize("config", result.values(), ids=result)


def check_saved(model: nn.Module, other: nn.Module, folder: Path, *inputs: Tensor) -> None:
    """Saved weights, loaded in a model with others, give the same output bit for bit."""
    write_tensors(own_tensors(model), folder / "model.safetensors")
    with torch.no_grad():
        expected = model(*inputs)
        assert differ(other(*inputs), expected)
        load_weights(other, folder / "model.safetensors")
        assert torch.equal(other(*inputs), expected)


def check_half_precision(model: nn.Module, *inputs: Tensor) -> None:
    """Under autocast, gradients are finite, also those of choices, and outputs near."""
    with torch.autocast("cpu", torch.bfloat16), choices(model) as made:
        trained = model(*inputs)
    drawn = sum((choice.log_probability.sum() for choice in made), torch.zeros(()))
    (trained.float().square().mean() + drawn).backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(bool(grad.isfinite().all()) for grad in grads)
    with torch.no_grad():
        exact = model(*inputs)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = model(*inputs)
    assert float((rounded.float() - exact).abs().mean()) < 0.1 * float(exact.std())


def check_future(model: Callable[[Tensor], Tensor], text: Tensor, at: int) -> None:
    """Other tokens from a position on change no bit of the outputs before it, and those after."""
    other = text.clone()
    other[:, at:] = 4 + (other[:, at:] - 3) % (VOCABULARY - 4)  # another token at each place
    before, after = model(text), model(other)
    assert torch.equal(before[:, :at], after[:, :at])
    assert differ(before[:, at:], after[:, at:])


def substitutions(config: Config) -> Iterator[tuple[str, Any]]:
    """The config with one part after the other, or a part of a part, exchanged for every other kind
    of its family.
    """
    for name in type(config).model_fields:
        value = getattr(config, name)
        if not isinstance(value, Config):
            continue
        others = list(substitutions(value))
        if value.family is not None:
            others += [(k, c) for k, c in defaults(value.family).items() if k != value.kind]
        for label, other in others:
            yield f"{name}.{label}", config.model_copy(update={name: other})


TRANSFORMER = shrink(TransformerEncoder.Config()), shrink(TransformerDecoder.Config())
RECURRENT = (
    shrink(RecurrentEncoder.Config(bidirectional=True)),
    shrink(RecurrentDecoder.Config(attention=RecurrentAttention())),
)
MAMBA = shrink(MambaEncoder.Config()), shrink(MambaDecoder.Config())


def changed(config: Config, **fields: Any) -> Any:
    """The config with other values, checked."""
    return type(config)(**{n: getattr(config, n) for n in type(config).model_fields} | fields)


def transformers(**fields: Any) -> tuple[Any, Any]:
    """Both parts of a Transformer with other values."""
    return changed(TRANSFORMER[0], **fields), changed(TRANSFORMER[1], **fields)


def attending(**fields: Any) -> Any:
    """A recurrent decoder with other values of its attention."""
    return changed(RECURRENT[1], attention=changed(RECURRENT[1].attention, **fields))


def _pairs() -> dict[str, tuple[Any, Any]]:
    """Encoders and decoders by name."""
    (encoder, decoder), (reading, writing), (mamba, _) = TRANSFORMER, RECURRENT, MAMBA
    heads, lstm = Attention.Config(num_heads=4), {"cell": LSTMCell.Config(), "num_layers": 2}
    interleaved = shrink(InterleavedDecoder.Config(local_position=Rotary.Config()))
    location = defaults("decoder")["location"]
    deep = changed(reading, **lstm), changed(writing, **lstm)
    pairs = {
        "transformer": TRANSFORMER,
        "recurrent": RECURRENT,
        "mamba": MAMBA,
        "mamba one way": (changed(mamba, bidirectional=False), MAMBA[1]),
        "ssru": (encoder, shrink(SSRUDecoder.Config())),
        "interleaved": (encoder, interleaved),
        "post-norm": transformers(norm_order="post"),
        "sandwich": transformers(norm_order="sandwich"),
        "plain": transformers(norm_order="plain"),
        "normed heads": transformers(attention=changed(heads, head_norm=RMSNorm.Config())),
        "grouped heads": transformers(attention=changed(heads, key_heads=2)),
        "head size": transformers(attention=Attention.Config(head_size=6)),
        "embedding norm": transformers(embedding_norm=LayerNorm.Config()),
        "transformer to recurrent": (encoder, writing),
        "recurrent to transformer": (reading, decoder),
        "several heads": (reading, attending(num_heads=4)),
        "current": (reading, attending(query="current")),
        "location": (reading, location),
        "transformer to location": (encoder, location),
        "no attention": (reading, changed(writing, attention=None)),
        "deep": deep,
    }
    for name, bridge in defaults("bridge").items():
        pairs[f"bridge {name}"] = deep[0], changed(deep[1], attention=None, bridge=bridge)
        pairs[f"bridge {name} and attention"] = deep[0], changed(deep[1], bridge=bridge)
    for name, (encoder, decoder) in (("transformer", TRANSFORMER), ("recurrent", RECURRENT)):
        for label, other in substitutions(encoder):
            pairs[f"{name} encoder {label}"] = other, decoder
        for label, other in substitutions(decoder):
            pairs[f"{name} decoder {label}"] = encoder, other
    encoder, decoder = TRANSFORMER
    others = {f"{name} encoder": (kind, decoder) for name, kind in defaults("encoder").items()}
    for name, kind in defaults("decoder").items():
        if kind.owner.reads_memory:
            others[f"{name} decoder"] = encoder, kind
    for name, cell in defaults("cell").items():
        for order in (None, changed(writing.attention, query="current")):
            own = changed(writing, cell=cell, attention=order)
            others[f"{name}, {order and order.query}"] = reading, own
    pairs |= {name: pair for name, pair in others.items() if pair not in pairs.values()}
    for name, attention in defaults("attention").items():
        if name != "full" and not issubclass(attention.owner, SparseAttention):
            pairs[f"cross {name}"] = encoder, changed(decoder, cross_attention=attention)
    del pairs["transformer decoder attention.linformer"]  # refused: it mixes the future in
    return pairs


def _models() -> dict[str, EncoderDecoder.Config]:
    result = {
        name: EncoderDecoder.Config(
            encoder=encoder,
            decoder=decoder,
            tie="none" if name.endswith("position.appended") else "target",  # sizes differ
        )
        for name, (encoder, decoder) in _pairs().items()
    }
    result["output bias"] = changed(result["transformer"], output_bias=True, tie="inputs")
    presets = defaults("model").items()
    return result | {n: c for n, c in presets if issubclass(c.owner, EncoderDecoder)}


MODELS = _models()


def build(config: Any, vocabulary: int = VOCABULARY, seed: int = 0) -> Any:
    """A model that reads tokens, ready for use and the same at every call."""
    torch.manual_seed(seed)
    tokens = Tokens(vocabulary)
    second = {EncoderDecoder: tokens, Classifier: Labels(("bad", "fair", "good"))}
    more = [part for kind, part in second.items() if issubclass(config.owner, kind)]
    return config.build(tokens, *more).eval()


def ids(*shape: int, vocabulary: int = VOCABULARY, seed: int = 1) -> Tensor:
    """Random ids of ordinary tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, vocabulary, shape, generator=generator)


def real(*lengths: int) -> Tensor:
    """(B, S), true at the first ``lengths[b]`` places of row b."""
    return torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]


def gradients_reach(model: torch.nn.Module, *unread: str) -> None:
    """Every parameter has a finite gradient, which is not zero unless the parameter is unread."""
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
        if not name.endswith("key.bias") and name not in unread:  # q·b is the same for every key
            assert bool(parameter.grad.any()), name


_built = cache(build)


def fresh(config: Any) -> Any:
    """The model of a config, built once, without gradients; tests leave its weights alone."""
    model = _built(config).eval()
    model.zero_grad()
    return model


FAMILY_NAMES = (
    "transformer", "recurrent", "mamba", "ssru", "post-norm", "grouped heads", "several heads",
    "location", "no attention", "current", "deep", "transformer to recurrent",
    "recurrent to transformer", "cross linear", "transformer decoder attention.local",
    "transformer decoder position.t5_causal", "bart-base", "bridge states", "bridge summary",
)  # fmt: skip


@pytest.fixture(params=at_scale(MODELS, FAMILY_NAMES))
def family(request: pytest.FixtureRequest) -> EncoderDecoder:
    """As `model`, but only a model of each family outside of ``make proofs``."""
    return fresh(MODELS[request.param])


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> EncoderDecoder:
    """Every family, and every kind of part in one of them."""
    return fresh(MODELS[request.param])


KEYS = real(5, 3)
MASKS: dict[str, Callable[[], Mask]] = {
    "none": Mask,
    "keys": lambda: Mask(KEYS),
    "causal": lambda: Mask(causal=True),
    "window": lambda: Mask(window=2),
    "all": lambda: Mask(KEYS, causal=True, window=3),
}
each_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
PARTS = {f"{name} softmax": {"score": score} for name, score in defaults("score").items()} | {
    f"scaled_dot {name}": {"normalizer": chosen} for name, chosen in defaults("normalizer").items()
}
ATTENTIONS = {
    f"{name} {heads}": Attention.Config(num_heads=heads, key_heads=key_heads, **parts)
    for name, parts in PARTS.items()
    for heads, key_heads in ((1, None), (4, 2))
}


@pytest.fixture(params=ATTENTIONS.values(), ids=ATTENTIONS)
def attention(request: pytest.FixtureRequest) -> Attention:
    """Every score and every normaliser, with one head and with heads that share keys."""
    torch.manual_seed(0)
    return request.param.build(SIZE).eval()


def weights_of(attention: Attention, *inputs: Any) -> Tensor:
    """The weights (B, H, T, S) that an attention forms."""
    with capture(attention) as maps:
        attention(*inputs)
    return maps[""]


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[int]]:
    """Choose the road, and get a list that grows at every use of the fused kernel."""

    def choose(expected: bool) -> list[int]:
        calls: list[int] = []
        kernel = torch.nn.functional.scaled_dot_product_attention

        def counted(*inputs: Any, **named: Any) -> Tensor:
            calls.append(1)
            return kernel(*inputs, **named)

        monkeypatch.setattr(fused_module, "SHORT", -1 if expected else 10**9)
        monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
        return calls

    return choose
