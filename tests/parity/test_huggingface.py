"""Models of the `transformers` library, read and written: the same outputs for the same weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from foveate.decode.constraints import DecodingBatch
from foveate.decode.search import Greedy
from foveate.exchange.base import ExchangeError
from foveate.exchange.huggingface import FAMILIES, from_huggingface, to_huggingface
from foveate.exchange.huggingface_rules import Family, Layers, look_up
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder
from foveate.models.language_model import LanguageModel, MaskedLanguageModel
from foveate.models.presets import PRESETS
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.positions import Rotary
from foveate.nn.spec import Tokens
from parity.hub import quietly, read_back, transformers
from tolerances import MODEL, rounding

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
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

# class, its config, what differs from tiny
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "gpt2 untied": ("GPT2LMHeadModel", "GPT2Config", GPT2 | {"tie_word_embeddings": False}),
    "gpt2 without head": ("GPT2Model", "GPT2Config", GPT2 | {"n_inner": 20}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA),
    "llama biased": (
        "LlamaForCausalLM",
        "LlamaConfig",
        LLAMA
        | {"attention_bias": True, "mlp_bias": True, "head_dim": 6, "tie_word_embeddings": True}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ),
    "llama 3": ("LlamaForCausalLM", "LlamaConfig", LLAMA | {"rope_parameters": LLAMA3}),
    "mistral": ("MistralForCausalLM", "MistralConfig", LLAMA | WINDOW),
    "mistral whole": ("MistralForCausalLM", "MistralConfig", LLAMA | {"sliding_window": None}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", LLAMA),
    "qwen2 tied": ("Qwen2ForCausalLM", "Qwen2Config", LLAMA | {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", LLAMA | {"head_dim": 6}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", GEMMA),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", GEMMA2),
    "gemma2 untied": ("Gemma2ForCausalLM", "Gemma2Config", GEMMA2 | {"tie_word_embeddings": False}),
    "gemma3_text": ("Gemma3ForCausalLM", "Gemma3TextConfig", GEMMA3),
    "bert": ("BertModel", "BertConfig", BERT),
    "bert masked": ("BertForMaskedLM", "BertConfig", BERT),
    "bert masked tanh": ("BertForMaskedLM", "BertConfig", BERT | {"hidden_act": "gelu_new"}),
    "bert joined": ("BertForPreTraining", "BertConfig", BERT),
    "roberta masked": ("RobertaForMaskedLM", "RobertaConfig", BERT | {"hidden_act": "relu"}),
    "roberta": ("RobertaModel", "RobertaConfig", BERT | {"type_vocab_size": 1}),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5),
    "t5 gated": ("T5ForConditionalGeneration", "T5Config", T5 | GATED | {"d_kv": 6}),
    "bart": ("BartForConditionalGeneration", "BartConfig", SIDES),
    "bart scaled": (
        "BartForConditionalGeneration", "BartConfig",
        SIDES | {"scale_embedding": True, "activation_function": "gelu_new"},
    ),
    "marian": (
        "MarianMTModel", "MarianConfig",
        SIDES | {"scale_embedding": True, "activation_function": "swish"},
    ),
    "pegasus": (
        "PegasusForConditionalGeneration", "PegasusConfig", SIDES | {"activation_function": "relu"}
    ),
    "m2m_100": (
        "M2M100ForConditionalGeneration", "M2M100Config", SIDES | {"scale_embedding": True}
    ),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", SIDES),
    "mt5 gated": (
        "MT5ForConditionalGeneration", "MT5Config", T5 | {"feed_forward_proj": "gated-gelu"}
    ),
}  # fmt: skip
HEADS = {"bert", "bert joined", "roberta"}  # of which something is left out
PAIRS = {
    "t5",
    "t5 gated",
    "bart",
    "bart scaled",
    "marian",
    "pegasus",
    "m2m_100",
    "mbart",
    "mt5 gated",
}


def theirs(name: str, **other: Any) -> Any:
    """A model of theirs in which every tensor counts: none is at its 0 or 1 of the beginning."""
    model_class, config_class, fields = CASES[name]

    def make() -> Any:
        config = getattr(transformers, config_class)(**{"vocab_size": VOCABULARY} | fields | other)
        return getattr(transformers, model_class)(config).eval()

    torch.manual_seed(0)
    model = quietly(make)
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


@torch.no_grad()
def outputs_of_ours(model: Any) -> list[Tensor]:
    """What there is to compare, at real places."""
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
def outputs_of_theirs(model: Any) -> list[Tensor]:
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


def near(outputs: list[Tensor], expected: list[Tensor]) -> None:
    for output, right in zip(outputs, expected, strict=True):
        assert float((output - right).abs().max()) < rounding(MODEL)


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_theirs_and_survive_the_way_back(name: str, tmp_path: Path) -> None:
    other = saved(name, tmp_path / "there")
    model = read(name, tmp_path / "there")
    expected = outputs_of_theirs(other)
    assert all(float(there.std()) > 0.05 for there in expected)
    near(outputs_of_ours(model), expected)
    to_huggingface(model, tmp_path / "back", name.split()[0])
    again = read_back(tmp_path / "back")
    if name == "gpt2 without head":
        again = again.transformer
    assert all(map(torch.equal, outputs_of_theirs(again), expected))
    assert read("", tmp_path / "back").config == model.config


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
        assert getattr(config, key, value) == value, key


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


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(PAIRS))
def test_greedy_outputs_are_theirs(name: str, tmp_path: Path) -> None:
    other, model = saved(name, tmp_path), read(name, tmp_path)
    ids, keys = texts()
    batch = DecodingBatch(range(3), DecoderSteps(model, model.encode(ids, keys)), [9, 9, 9])
    result = Greedy.Config(max_ratio=0.0, max_extra=9).build()(batch, 2, VOCABULARY)
    how = {"num_beams": 1, "do_sample": False, "max_new_tokens": 9, "eos_token_id": None}
    expected = quietly(lambda: other.generate(ids, attention_mask=keys.long(), **how))
    assert [[2, *hypothesis.ids] for (hypothesis,) in result] == expected.tolist()


def ours(**fields: Any) -> EncoderDecoder:
    sizes = {"hidden_size": 16, "num_heads": 4, "num_layers": 1, "ffn_size": 20}
    encoder = TransformerEncoder.Config(**sizes | fields)
    decoder = TransformerDecoder.Config(**sizes | fields)
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
    near(expected, outputs_of_theirs(other.eval()))
    near(outputs_of_ours(from_huggingface(tmp_path)), expected)
    assert all(map(torch.equal, outputs_of_ours(model), before)), "the model itself is as it was"


def test_what_has_no_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExchangeError, match=r"bart does not support .*encoder\.norm_order = 'pre'"):
        to_huggingface(ours(), tmp_path, "bart")
    turned = ours(position=Rotary.Config())
    expected = r"no architecture fits .*; pegasus does not support decoder\.position\.kind = 'rope'"
    with pytest.raises(ExchangeError, match=expected):
        to_huggingface(turned, tmp_path)
    with pytest.raises(ExchangeError, match=r"fits EncoderDecoder\.Config; none is of this kind"):
        to_huggingface(ours(), tmp_path, "gpt2")
    match = "'rwkv' is not a supported architecture; there are: gpt2, llama"
    with pytest.raises(ExchangeError, match=match):
        to_huggingface(ours(), tmp_path, "rwkv")
    assert not list(tmp_path.iterdir())


def masked(**fields: Any) -> MaskedLanguageModel:
    sizes = {"hidden_size": 16, "num_heads": 4, "num_layers": 1, "ffn_size": 20}
    config = MaskedLanguageModel.Config(encoder=PRESETS["roberta-base"](**sizes), **fields)
    torch.manual_seed(0)
    model: MaskedLanguageModel = config.build(Tokens(VOCABULARY)).eval()
    return model


@torch.no_grad()
def test_a_preset_with_a_head_becomes_theirs(tmp_path: Path) -> None:
    model = masked()
    for architecture, name in ((None, "Bert"), ("roberta", "Roberta")):  # both have a place for it
        to_huggingface(model, tmp_path, architecture)
        other = quietly(lambda: transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)).eval()
        assert type(other).__name__ == f"{name}ForMaskedLM"
        expected = outputs_of_theirs(other)
        assert all(float(there.std()) > 0.05 for there in expected)
        near(outputs_of_ours(model), expected)
    with pytest.raises(ExchangeError, match=r"bert does not support tie = 'none'"):
        to_huggingface(masked(tie="none"), tmp_path, "bert")
    with pytest.raises(ExchangeError, match=r"roberta does not support activation = 'relu'"):
        to_huggingface(masked(activation="relu"), tmp_path, "roberta")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    saved("gpt2", tmp_path)
    return tmp_path


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
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_what_does_not_fit_is_named(name: str, folder: Path) -> None:
    settings, tensors, message = ERRORS[name]
    change(folder, settings, **tensors)
    with pytest.raises(ExchangeError, match=message):
        from_huggingface(folder)


def test_a_wrong_folder_is_named(folder: Path) -> None:
    with pytest.raises(ExchangeError, match=r"nowhere/config\.json: no such file; give the folder"):
        from_huggingface(folder / "nowhere")
    (folder / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ExchangeError, match=r"model\.safetensors: damaged"):
        from_huggingface(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ExchangeError, match=r"model\.safetensors: no such file; .*save_pretrained"):
        from_huggingface(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ExchangeError, match=r"config\.json: no JSON"):
        from_huggingface(folder)


def test_llama_refuses_a_rotation_that_we_do_not_have(tmp_path: Path) -> None:
    saved("llama", tmp_path)
    change(tmp_path, {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}})
    with pytest.raises(ExchangeError, match=r"config\.json: rope_type = 'yarn'"):
        from_huggingface(tmp_path)


def test_heads_of_hidden_words_that_differ_are_refused(tmp_path: Path) -> None:
    saved("bert masked", tmp_path)
    change(tmp_path, cls__predictions__decoder__bias=torch.zeros(VOCABULARY))
    with pytest.raises(ExchangeError, match=r"decoder\.bias \(differs from cls\.predictions\.bias"):
        from_huggingface(tmp_path)
    change(tmp_path, {"tie_word_embeddings": False}, cls__predictions__decoder__bias=None)
    with pytest.raises(ExchangeError, match=r"tie_word_embeddings = False is not supported"):
        from_huggingface(tmp_path)


def test_shards_and_old_names_are_read(tmp_path: Path) -> None:
    other = saved("bert", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    shards: dict[str, dict[str, Tensor]] = {"a.safetensors": {}, "b.safetensors": {}}
    for number, (name, tensor) in enumerate(weights.items()):
        for new, before in old.items():
            name = name.replace(new, before)
        shards[sorted(shards)[number % 2]][name] = tensor
    for file, tensors in shards.items():
        save_file(tensors, tmp_path / file)
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    near(outputs_of_ours(read("bert", tmp_path)), outputs_of_theirs(other))
