"""Our post-norm Transformer against Marian of the `transformers` library, with the same weights."""

from typing import Any

import pytest
import torch
from torch import Tensor

from foveate.decode.constraints import DecodingBatch
from foveate.decode.search import Greedy
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.linear import GELU, ReLU
from foveate.nn.positions import Sinusoidal
from foveate.nn.spec import Tokens
from parity.hub import quietly, transformers
from tolerances import MODEL, close

SIZE, HEADS, LAYERS, FFN, VOCABULARY, PLACES = 32, 4, 2, 48, 40, 64
PAD, START, END = 1, 2, 3
ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
ACTIVATIONS = {"relu": ReLU.Config(), "gelu": GELU.Config()}


def ours(activation: str) -> EncoderDecoder:
    sizes: dict[str, Any] = {
        "hidden_size": SIZE, "num_heads": HEADS, "num_layers": LAYERS, "ffn_size": FFN,
        "norm_order": "post", "feed_forward": ACTIVATIONS[activation],
    }  # fmt: skip
    encoder, decoder = TransformerEncoder.Config(**sizes), TransformerDecoder.Config(**sizes)
    config = EncoderDecoder.Config(encoder=encoder, decoder=decoder, tie="all")
    model: EncoderDecoder = config.build(Tokens(VOCABULARY), Tokens(VOCABULARY)).eval()
    with torch.no_grad():  # so that biases and norms count as well, and outputs do not repeat
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.output.weight.mul_(0.1)
    return model


def marian(activation: str) -> Any:
    side = {"layers": LAYERS, "attention_heads": HEADS, "ffn_dim": FFN}
    sides = {f"{part}_{n}": size for part in ("encoder", "decoder") for n, size in side.items()}
    sizes = {"vocab_size": VOCABULARY, "d_model": SIZE, "max_position_embeddings": PLACES}
    ids = {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": START}
    ids |= {"decoder_start_token_id": START, "forced_eos_token_id": None}
    how = {"activation_function": activation, "scale_embedding": True, "dropout": 0.0}
    config = transformers.MarianConfig(
        **sides | sizes | ids | how, share_encoder_decoder_embeddings=True
    )
    return transformers.MarianMTModel(config).eval()


def theirs(name: str) -> str:
    """Marian's name of one of our parameters."""
    side, *parts, last = name.split(".")
    if side == "output":
        return "model.shared.weight"
    if parts[0] == "stem":
        return "model.shared.weight"
    layer, block = f"model.{side}.layers.{parts[1]}", parts[2]
    if block == "blocks":
        norms = ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"]
        if side == "encoder":
            del norms[1]
        return f"{layer}.{norms[int(parts[3])]}.{last}"
    if block == "feed_forward":
        return f"{layer}.{ {'inner': 'fc1', 'outer': 'fc2'}[parts[3]] }.{last}"
    attention = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}[block]
    return f"{layer}.{attention}.{ATTENTION[parts[3]]}.{last}"


@pytest.fixture(params=ACTIVATIONS)
def pair(request: pytest.FixtureRequest) -> tuple[EncoderDecoder, Any]:
    """Our model and Marian with its weights; positions interleaved as in ours."""
    model, other = quietly(lambda: (ours(request.param), marian(request.param)))
    weights = {theirs(name): weight for name, weight in model.named_parameters()}
    places = Sinusoidal.Config().build(SIZE, HEADS).encode(torch.arange(PLACES), SIZE)
    with torch.no_grad():
        taken = set()
        for name, parameter in other.named_parameters():
            if name.endswith("embed_positions.weight"):
                parameter.copy_(places)
            else:
                parameter.copy_(weights[name])
                taken.add(name)
    assert taken == set(weights), "every weight of ours has a place in Marian"
    assert not bool(other.final_logits_bias.any())
    return model, other


def source(*lengths: int) -> tuple[Tensor, Tensor]:
    """Random sources with their ends, padded on the right, and where they are real."""
    ids = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in enumerate(lengths):
        ids[row, : length - 1] = torch.randint(4, VOCABULARY, (length - 1,))
        ids[row, length - 1] = END
    return ids, ids != PAD


@torch.no_grad()
def test_logits_are_marians(pair: tuple[EncoderDecoder, Any]) -> None:
    model, other = pair
    ids, keys = source(9, 5, 2)
    target = torch.randint(4, VOCABULARY, (3, 7))
    expected = other(input_ids=ids, attention_mask=keys.long(), decoder_input_ids=target)
    close(model(ids, target, keys), expected.logits, terms=MODEL)
    encoded = expected.encoder_last_hidden_state
    close(model.encode(ids, keys).values[keys], encoded[keys], terms=MODEL)


@torch.no_grad()
def test_greedy_outputs_are_marians(pair: tuple[EncoderDecoder, Any]) -> None:
    model, other = pair
    lengths = [9, 5, 2, 7] * 8
    ids, keys = source(*lengths)
    search = Greedy.Config(max_ratio=0.0, max_extra=12).build()

    def outputs(end: int) -> list[list[int]]:
        steps = DecoderSteps(model, model.encode(ids, keys))
        result = search(DecodingBatch(range(len(lengths)), steps, lengths), START, end)
        return [[*h.ids, *[end] * h.ended] for (h,) in result]

    endless = outputs(VOCABULARY)
    assert len(set(map(tuple, endless))) > 4, "different sources, different outputs"
    # a token that ends some of the outputs, at different places: weights of chance end hardly any
    end = max(range(VOCABULARY), key=lambda t: len({o.index(t) for o in endless if t in o}))
    how = {"num_beams": 1, "do_sample": False, "max_new_tokens": 12, "eos_token_id": end}
    expected = quietly(lambda: other.generate(ids, attention_mask=keys.long(), **how))
    ours_ended = outputs(end)
    assert len(set(map(len, ours_ended))) > 2
    for row, output in zip(expected.tolist(), ours_ended, strict=True):
        assert row[0] == START
        assert row[1:] == output + [PAD] * (len(row) - 1 - len(output))
