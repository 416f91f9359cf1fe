"""Export to, and import from, Hugging Face folders."""

import json
import os
import warnings
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from foveate.config import Config
from foveate.data.tokenizer import BOS, EOS, PAD, SPECIALS, UNK, Tokenizer, bounded
from foveate.decode.beam import Beam
from foveate.decode.search import Search
from foveate.errors import UserError
from foveate.exchange.base import (
    Checked,
    CheckSample,
    Different,
    ExchangeError,
    Export,
    Ids,
    compare,
    refuse_own,
    searches,
    translator,
)
from foveate.exchange.huggingface_families import FAMILIES
from foveate.exchange.huggingface_rules import (
    SPECIAL_IDS,
    Family,
    Settings,
    Tensors,
    ends_of,
    in_halves,
    read_by,
    wave_table,
)
from foveate.exchange.tokenizers import tokenizer_json
from foveate.files import replace_file
from foveate.models.classifier import Classifier
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.interleaved import InterleavedDecoder
from foveate.models.language_model import LanguageModel, MaskedLanguageModel
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.spec import Pixels, Tokens
from foveate.train import stored
from foveate.train.stored import Size, opened, write_tensors

CONFIG, HUB_WEIGHTS = "config.json", "model.safetensors"
STRANGE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError)
AGAIN = "write it again with save_pretrained of transformers"
FAST = "save the tokenizer as a fast one: tokenizer.save_pretrained(folder)"


def from_huggingface(folder: str | Path) -> nn.Module:
    """Return our model of a folder, ready for use, with its weights in fp32.

    GPT-2, Llama, Mistral, Qwen2, Qwen3 and Gemma 1 to 3 give a `LanguageModel`; T5, mT5, BART,
    mBART, Marian, Pegasus and M2M100 an `EncoderDecoder`; BERT and RoBERTa a `MaskedLanguageModel`,
    ViT a `Classifier`, or a `TransformerEncoder` if the folder has no such head. Other heads are
    left out with a warning that lists them. Raises `ExchangeError` for files that are missing, of
    another family, or do not fit.
    """
    folder = Path(folder)
    settings = read_settings(folder / CONFIG)
    families = _families(str(settings.get("model_type")), folder / CONFIG)
    tensors = {}
    for name, tensor in _read_tensors(folder).items():  # older files use these names for a norm
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        tensors[name.replace("LayerNorm.beta", "LayerNorm.bias")] = tensor
    family = next(f for f in families if f.when(settings) and f.head in (None, *tensors))
    return model_of(family, settings, tensors, folder / CONFIG, folder / HUB_WEIGHTS)


def model_of(
    family: Family, settings: Settings, tensors: Tensors, config_file: Path, weights_file: Path
) -> nn.Module:
    """Return our model of a family with these tensors; errors name the two files."""
    there = Size(len(tensors), sum(tensor.numel() for tensor in tensors.values()))
    try:
        settings = family.completed(settings, tensors)
        config = family.read_config(settings)
        stored.refuse_larger(config.tree(), there, "the model")
        with stored.Within(there, "the config"):
            model: nn.Module = config.build(*family.ends(settings))
    except STRANGE as error:
        raise ExchangeError(f"{config_file}: {error}") from error
    try:
        _fill(model, family, settings, tensors, weights_file)
    except ExchangeError:
        raise
    except STRANGE as error:
        raise ExchangeError(f"{weights_file}: {error}; {AGAIN}") from error
    return model.eval()


def to_huggingface(model: nn.Module, folder: str | Path, architecture: str | None = None) -> Path:
    """Write one of our models so that `transformers` loads it and computes the same.

    The translation models of this library become a Marian (post-norm) or a Pegasus (pre-norm).

    ``architecture`` is a ``model_type`` such as "bart"; None means the first that supports
    everything in the model. Special tokens are those of our vocabularies, labels those of
    the model. Raises `ExchangeError` with the unsupported parts.
    """
    folder = Path(folder)
    refuse_own(model.modules(), "huggingface")
    config, weights = in_halves(model)
    family, written = fitting(config.plain(), architecture)
    written = family.finish(written | ends_of(model))
    written = {"model_type": family.name, "architectures": [family.architecture]} | written
    written = {**written, "dtype": "float32", "torch_dtype": "float32"}
    tensors: dict[str, Tensor] = {}
    for name, weight in weights.items():
        theirs, form = family.their_name(name, written)
        if theirs.endswith(family.zeros):
            if weight.any():
                raise ExchangeError(f"{family.name} has no {theirs}, and our {name} is not 0")
            continue
        tensors[theirs] = form.write(weight.float(), tensors.get(theirs), written).contiguous()
    for theirs in family.optional:
        size = "decoder_vocab_size" if "decoder_vocab_size" in written else "vocab_size"
        tensors.setdefault(theirs, torch.zeros(1, written[size]))
    for theirs in family.waves:
        tensors[theirs] = wave_table(written["max_position_embeddings"], written["d_model"])
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(tensors, folder / (stored.NEW + HUB_WEIGHTS))
    os.replace(folder / (stored.NEW + HUB_WEIGHTS), folder / HUB_WEIGHTS)
    replace_file(folder / CONFIG, json.dumps(written, indent=2, sort_keys=True) + "\n")
    return folder


def read_settings(path: Path) -> Settings:
    """Return the JSON object in a file that transformers wrote."""
    if isinstance(settings := read_json(path, AGAIN), dict):
        return settings
    raise ExchangeError(f"{path}: not a JSON object; {AGAIN}")


def read_json(path: Path, remedy: str) -> Any:
    """Return the value in a JSON file. Raises `ExchangeError`, which ends with the remedy."""
    if not path.is_file():
        raise ExchangeError(f"{path}: no such file; {remedy}")
    try:
        return json.loads(bounded(path))
    except (ValueError, RecursionError) as error:
        raise ExchangeError(f"{path}: no JSON ({error}); {remedy}") from None


def _families(name: str, path: Path) -> list[Family]:
    """Return the families of a ``model_type``."""
    families = [family for family in FAMILIES if family.name == name]
    if not families:
        have = ", ".join(dict.fromkeys(family.name for family in FAMILIES))
        raise ExchangeError(
            f"{path}: model_type = {name!r} is not a supported architecture; there are: {have}"
        )
    return families


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return all tensors in model.safetensors, or in the shards that its index lists."""
    index = folder / f"{HUB_WEIGHTS}.index.json"
    names = [HUB_WEIGHTS]
    if not (folder / HUB_WEIGHTS).is_file() and index.is_file():
        names = _shards(index)
    tensors: dict[str, Tensor] = {}
    for path in (folder / name for name in names):
        if not path.is_file():
            raise ExchangeError(
                f"{path}: no such file; weights in other formats are not read: {AGAIN}"
            )
        try:
            with opened(path) as file:
                tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except stored.DamagedError as error:
            why = str(error).removeprefix(f"{path} ")
            raise ExchangeError(f"{path}: damaged ({why}); {AGAIN}, or fetch it again") from None
    return tensors


def _shards(index: Path) -> list[str]:
    """Return the files listed in an index. Raises `ExchangeError` for one that is not beside it."""
    try:
        names = sorted(set(read_settings(index)["weight_map"].values()))
        strange = [name for name in names if not stored.is_beside(name)]
    except (LookupError, AttributeError, TypeError) as error:
        raise ExchangeError(f"{index}: no index of weights ({error!r}); {AGAIN}") from None
    if strange:
        raise ExchangeError(f"{index} names {strange[0]!r}, which is not a file beside it; {AGAIN}")
    return names


def _fill(
    model: nn.Module, family: Family, settings: Settings, tensors: Tensors, path: Path
) -> None:
    """Copy every tensor to its parameter, and account for those that have none."""
    used = set()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            theirs, form = family.their_name(name, settings)
            own = _stored(theirs, family.prefix, tensors)
            if own is None and (theirs in family.optional or theirs.endswith(family.zeros)):
                parameter.zero_()
                continue
            if own is None:
                raise ExchangeError(
                    f"{path}: no tensor {theirs!r} (our {name}): the file is damaged or not of "
                    f"the {family.name} that {CONFIG} describes; {AGAIN}"
                )
            value = form.read(tensors[own], settings)
            if value.shape != parameter.shape:
                raise ExchangeError(
                    f"{path}: {own} is {tuple(tensors[own].shape)}, which is "
                    f"{tuple(value.shape)} here, but {CONFIG} asks for {tuple(parameter.shape)}: "
                    "the two files belong to different models; take both from the same folder"
                )
            parameter.copy_(value)
            used.add(own)
    _account(family, {name: t for name, t in tensors.items() if name not in used}, tensors, path)


def _stored(theirs: str, prefix: str, tensors: Tensors) -> str | None:
    """Return the name under which a tensor is stored: models without a head omit the prefix."""
    names = (theirs, prefix + theirs, theirs.removeprefix(prefix))
    return next((name for name in names if name in tensors), None)


def _account(family: Family, left: Tensors, tensors: Tensors, path: Path) -> None:
    """Warn of unused tensors, and refuse those that might change what is computed."""
    heads, unknown = [], []
    for name, tensor in left.items():
        if name.endswith(family.computed):
            continue
        first = _stored(family.copies.get(name, "\n"), family.prefix, tensors)
        if first is not None:
            if not torch.equal(tensor, tensors[first]):
                unknown.append(f"{name} (differs from {first}, to which {CONFIG} ties it)")
        elif name.startswith(family.heads):
            heads.append(name)
        else:
            unknown.append(name)
    if unknown:
        raise ExchangeError(
            f"{path}: {len(unknown)} tensors do not fit our {family.name}, so it would not "
            f"compute the same: {', '.join(sorted(unknown)[:4])}; save the plain "
            f"{family.architecture}"
        )
    if heads:
        warnings.warn(
            f"{path}: {len(heads)} tensors of heads are ignored: {', '.join(sorted(heads))}",
            stacklevel=3,
        )


def fitting(config: Config, architecture: str | None = None) -> tuple[Family, Settings]:
    """Return the family that supports the whole config, and its config.json."""
    chosen = list(FAMILIES)
    if architecture is not None:
        chosen = _families(architecture, Path("to_huggingface"))
    reasons = []
    for family in chosen:
        if not isinstance(config, type(family.config)):
            continue
        try:
            return family, family.write_config(config)
        except ExchangeError as error:
            reasons.append(str(error))
    nearest = min(reasons, key=len, default="none is of this kind")
    raise ExchangeError(f"no architecture fits {type(config).__qualname__}; {nearest}")


CLASSES = {  # our models and the class that loads their equivalents
    EncoderDecoder: "AutoModelForSeq2SeqLM",
    LanguageModel: "AutoModelForCausalLM",
    MaskedLanguageModel: "AutoModelForMaskedLM",
    Classifier: "AutoModelForImageClassification",
}
ROWS = 8  # random inputs on which models without text output are compared
CLOSE = 1e-3  # how far apart their scores may be


class HuggingFace(Export):
    """A folder of config.json, model.safetensors, tokenizer.json and their companions.

    Its own library loads it, as here a translator:

        tokenizer = AutoTokenizer.from_pretrained(out)
        AutoModelForSeq2SeqLM.from_pretrained(out).generate(**tokenizer(text, return_tensors="pt"))
    """

    to = "huggingface"
    packages = ("transformers",)

    def refuse(self) -> None:
        if type(self.run.model) not in CLASSES:
            raise ExchangeError(
                f"transformers has no {type(self.run.model).__name__} like ours; translation, "
                "language and masked models and classifiers of pictures of Transformer layers "
                "have a place there; its weights are in its folder, as safetensors"
            )
        for side, part in self.run.model.named_children():
            stack = type(part) in (TransformerEncoder, TransformerDecoder, InterleavedDecoder)
            if side in ("encoder", "decoder") and not stack:
                raise ExchangeError(
                    f"transformers has no {side} of the kind {cast(Config, part.config).kind} like "
                    "ours: it takes transformer"
                )
        try:
            fitting(in_halves(self.run.model)[0].plain())
        except ExchangeError:
            raise
        except UserError as error:
            name = type(self.run.model).__name__
            raise ExchangeError(f"no architecture fits this {name}: {error}") from None
        if len(self._tokenizers()) > 1:
            raise ExchangeError(
                "transformers has one vocabulary for both sides: train with task.joint = true"
            )
        for tokenizer in self._tokenizers():
            tokenizer_json(tokenizer)

    def _tokenizers(self) -> list[Tokenizer]:
        """Return the tokenizers of source and target, or the only one, or none."""
        return list(dict.fromkeys(self.run.task.tokenizers_by_name().values()))

    def write(self, place: Path, pointer: dict[str, object]) -> None:
        place.mkdir()
        to_huggingface(self.run.model, place)
        start = isinstance(self.run.model, LanguageModel)
        for tokenizer in self._tokenizers():
            _write_json(place / "tokenizer.json", tokenizer_json(tokenizer, start))
            _write_json(place / "tokenizer_config.json", _settings(self._longest()))
        if isinstance(self.run.model, EncoderDecoder | LanguageModel):
            _write_json(place / "generation_config.json", self._generation())

    def _longest(self) -> int:
        return int(getattr(self.run.config.data, "max_length", 1 << 30))

    def _generation(self) -> Settings:
        """Return how `generate` begins and ends: greedy, as ``foveate translate --beam-size 1``."""
        search = self.run.config.decode
        longest = int(search.max_ratio * min(self._longest(), 1024)) + search.max_extra
        settings: Settings = SPECIAL_IDS | {"num_beams": 1, "do_sample": False}
        settings["max_new_tokens"] = longest
        if isinstance(self.run.model, EncoderDecoder):
            return settings | {"decoder_start_token_id": BOS}
        return settings | {"suppress_tokens": [PAD, BOS]}

    def check(self, place: Path, sample: CheckSample) -> Checked:
        import transformers

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the library for its own developers
            logging: Any = transformers.utils.logging
            logging.set_verbosity_error()
            logging.disable_progress_bar()
            name = CLASSES[type(self.run.model)]
            model = getattr(transformers, name).from_pretrained(str(place)).eval()
            if not isinstance(self.run.model, EncoderDecoder):
                return self._scores(model)
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(place))
            return self._texts(model, tokenizer, sample)

    def _texts(self, model: Any, tokenizer: Any, sample: CheckSample) -> Checked:
        """Compare complete translations, from text to text."""
        task = translator(self.run)
        limit = task.data.max_length
        for line in sample.sources:
            ours = [*task.source_tokenizer.encode_ids([line])[0], EOS]
            if line.strip() and len(ours) <= limit and tokenizer(line)["input_ids"] != ours:
                raise Different(f"the new tokenizer cuts {line!r} differently; nothing was written")

        def theirs(sources: list[Ids], search: Search) -> list[Ids]:
            outputs = _generated(model, sources, search)
            for ids in outputs:
                text = tokenizer.decode(ids, skip_special_tokens=True)
                if text != task.target_tokenizer.decode(ids):
                    raise Different(f"the new tokenizer reads {text!r} in {ids}")
            return outputs

        # α = 0, because the library's length penalty is a different score
        tried: dict[str, Search] = {
            name: search.config.model_copy(update={"length_penalty": 0.0}).build()
            if isinstance(search, Beam)
            else search
            for name, search in searches(self.run).items()
        }
        return compare(self.run, sample, tried, theirs, exact=True)

    @torch.no_grad()
    def _scores(self, model: Any) -> Checked:
        """Compare scores of all tokens or labels on random inputs, for models without output."""
        inputs = drawn(self.run.model)
        name = "pixel_values" if inputs.is_floating_point() else "input_ids"
        theirs, ours = model(**{name: inputs}).logits, self.run.model(inputs)
        far = float((theirs - ours).abs().max())
        if not far < CLOSE:
            raise Different(
                f"scores on drawn inputs are {far:.2g} apart, more than {CLOSE:g}; nothing was "
                "written"
            )
        places = ours.shape[:-1].numel()
        return Checked(len(inputs), [f"scores {far:.1g} apart on drawn inputs"], places)


def drawn(model: nn.Module) -> Tensor:
    """Return inputs of a model's kind from a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    source = read_by(model)
    if isinstance(source, Pixels):
        return torch.rand(ROWS, source.channels, source.height, source.width, generator=generator)
    assert isinstance(source, Tokens)
    return torch.randint(UNK + 4, source.vocab_size, (ROWS, 16), generator=generator)


@torch.no_grad()
def _generated(model: Any, sources: list[Ids], search: Search) -> list[Ids]:
    """Return the outputs for sources of one length."""
    read = torch.tensor([[*ids, EOS] for ids in sources])
    outputs = model.generate(
        input_ids=read,
        attention_mask=torch.ones_like(read),
        num_beams=search.width,
        do_sample=False,
        length_penalty=0.0 if search.width > 1 else 1.0,
        early_stopping=search.width > 1,  # stop once as many outputs have ended as there are beams
        max_new_tokens=search.limits([len(sources[0])])[0],
    )
    written = (output[1:] for output in outputs.tolist())
    return [ids[: ids.index(EOS)] if EOS in ids else ids for ids in written]


def _settings(longest: int) -> dict[str, object]:
    names = dict(zip(("unk_token", "pad_token", "bos_token", "eos_token"), SPECIALS, strict=True))
    return names | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # a user's </s> is text
        "model_input_names": ["input_ids", "attention_mask"],
    }


def _write_json(path: Path, tree: dict[str, object]) -> None:
    replace_file(path, json.dumps(tree, ensure_ascii=False, indent=2) + "\n")
