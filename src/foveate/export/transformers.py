"""A run as a folder that `from_pretrained` of `transformers` loads, its tokenizer included.

    tokenizer = AutoTokenizer.from_pretrained(out)
    AutoModelForSeq2SeqLM.from_pretrained(out).generate(**tokenizer(text, return_tensors="pt"))

Lives here: the folder, and asking the library. Does not live here: weights and their names
(`foveate.export.huggingface`), the tokenizer's file (`foveate.export.tokenizer_json`).
"""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foveate.atomic import replace_file
from foveate.data.tokenizer import BOS, EOS, PAD, SPECIALS, UNK, Tokenizer
from foveate.decode.beam import Beam
from foveate.decode.steps import Search
from foveate.export.base import Export
from foveate.export.compare import (
    Checked,
    Different,
    Ids,
    Sample,
    by_length,
    compare,
    searches,
)
from foveate.export.huggingface import fitting, to_huggingface
from foveate.export.huggingface_halves import in_halves
from foveate.export.huggingface_rules import ExchangeError
from foveate.export.tokenizer_json import tokenizer_json
from foveate.models.classifier import Classifier
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.language_model import LanguageModel
from foveate.models.masked_language_model import MaskedLanguageModel
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.spec import Pixels, Tokens

CLASSES = {  # our models and the class that loads their like
    EncoderDecoder: "AutoModelForSeq2SeqLM",
    LanguageModel: "AutoModelForCausalLM",
    MaskedLanguageModel: "AutoModelForMaskedLM",
    Classifier: "AutoModelForImageClassification",
}
ROWS = 8  # drawn inputs on which models that write no text are compared
CLOSE = 1e-3  # how far their scores may be apart


class HuggingFace(Export):
    """A folder of config.json, model.safetensors, tokenizer.json and their companions."""

    to = "huggingface"
    packages = ("transformers",)

    def refuse(self) -> None:
        if type(self.run.model) not in CLASSES:
            raise ExchangeError(
                f"transformers has no {type(self.run.model).__name__} like ours; translation, "
                "language and masked models and classifiers of pictures of Transformer layers "
                "have a place there; safetensors takes any run"
            )
        for side in ("encoder", "decoder"):
            part = getattr(self.run.model, side, None)
            if part is not None and type(part) not in (TransformerEncoder, TransformerDecoder):
                raise ExchangeError(
                    f"transformers has no {side} of the kind {part.config.kind} like ours: it "
                    "takes transformer, and what else can be exported is safetensors"
                )
        try:
            fitting(in_halves(self.run.model)[0].plain())
        except ExchangeError:
            raise
        except ValueError as error:
            name = type(self.run.model).__name__
            raise ExchangeError(
                f"no architecture fits this {name}: {error}; safetensors takes any run"
            ) from None
        if len(self._tokenizers()) > 1:
            raise ExchangeError(
                "transformers has one vocabulary for both sides: train with task.joint = true"
            )
        for tokenizer in self._tokenizers():
            tokenizer_json(tokenizer)

    def _tokenizers(self) -> list[Tokenizer]:
        """Those of the source and of the target, or the only one, or none."""
        task = self.run.task
        found = [getattr(task, f"{name}tokenizer", None) for name in ("source_", "target_", "")]
        return [one for one in dict.fromkeys(found) if isinstance(one, Tokenizer)]

    def write(self, place: Path, pointer: dict[str, Any]) -> None:
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

    def _generation(self) -> dict[str, Any]:
        """How `generate` begins and ends: greedy, as ``foveate translate --beam-size 1``."""
        search = self.run.config.decode
        longest = int(search.max_ratio * min(self._longest(), 1024)) + search.max_extra
        said: dict[str, Any] = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
        said |= {"num_beams": 1, "do_sample": False, "max_new_tokens": longest}
        if isinstance(self.run.model, EncoderDecoder):
            return said | {"decoder_start_token_id": BOS}
        return said | {"suppress_tokens": [PAD, BOS]}

    def check(self, place: Path, sample: Sample) -> Checked:
        import transformers

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the library to its own developers
            logging: Any = transformers.utils.logging
            logging.set_verbosity_error()
            logging.disable_progress_bar()
            auto = getattr(transformers, CLASSES[type(self.run.model)])
            model = auto.from_pretrained(str(place)).eval()
            if not isinstance(self.run.model, EncoderDecoder):
                return self._scores(model)
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(place))
            return self._texts(model, tokenizer, sample)

    def _texts(self, model: Any, tokenizer: Any, sample: Sample) -> Checked:
        """The whole way from text to text."""
        task = self.run.task
        limit = task.data.max_length
        for line in sample.sources:
            ours = [*task.source_tokenizer.encode_ids([line])[0], EOS]
            if line.strip() and len(ours) <= limit and tokenizer(line)["input_ids"] != ours:
                raise Different(f"the tokenizer there cuts {line!r} otherwise; nothing was written")

        def theirs(sources: list[Ids], search: Search) -> list[Ids]:
            found: list[Ids] = [[] for _ in sources]
            for numbers in by_length(sources).values():
                outputs = _generated(model, [sources[n] for n in numbers], search)
                for number, ids in zip(numbers, outputs, strict=True):
                    found[number] = ids
            for ids in found:
                text = tokenizer.decode(ids, skip_special_tokens=True)
                if text != task.target_tokenizer.decode(ids):
                    raise Different(f"the tokenizer there reads {text!r} in {ids}")
            return found

        tried = {
            name: search if not isinstance(search, Beam) else _without_penalty(search)
            for name, search in searches(self.run).items()
        }
        return compare(self.run, sample, tried, theirs, exact=True)

    @torch.no_grad()
    def _scores(self, model: Any) -> Checked:
        """Scores of every token or label on drawn inputs, for models that write no text."""
        inputs = drawn(self.run.model)
        name = "pixel_values" if inputs.is_floating_point() else "input_ids"
        there, here = model(**{name: inputs}).logits, self.run.model(inputs)
        far = float((there - here).abs().max())
        if not far < CLOSE:
            raise Different(
                f"scores on drawn inputs are {far:.2g} apart, more than {CLOSE:g}; nothing was "
                "written"
            )
        places = here.shape[:-1].numel()
        return Checked(len(inputs), [f"scores {far:.1g} apart on drawn inputs"], places)


def drawn(model: Any) -> Tensor:
    """Inputs of a model's kind, always the same."""
    generator = torch.Generator().manual_seed(0)
    stem = getattr(model, "encoder", None) or model.decoder
    source = stem.stem.source
    if isinstance(source, Pixels):
        return torch.rand(ROWS, source.channels, source.height, source.width, generator=generator)
    assert isinstance(source, Tokens)
    return torch.randint(UNK + 4, source.vocab_size, (ROWS, 16), generator=generator)


@torch.no_grad()
def _generated(model: Any, sources: list[Ids], search: Search) -> list[Ids]:
    """The outputs of sources of one length."""
    read = torch.tensor([[*ids, EOS] for ids in sources])
    outputs = model.generate(
        input_ids=read,
        attention_mask=torch.ones_like(read),
        num_beams=search.width,
        do_sample=False,
        length_penalty=0.0 if search.width > 1 else 1.0,
        early_stopping=search.width > 1,  # once as many outputs have ended as there are beams
        max_new_tokens=search.limits([len(sources[0])])[0],
    )
    written = (output[1:] for output in outputs.tolist())
    return [ids[: ids.index(EOS)] if EOS in ids else ids for ids in written]


def _without_penalty(search: Beam) -> Search:
    """The same beam with α = 0: what the library calls a length penalty is another score."""
    built: Search = search.config.model_copy(update={"length_penalty": 0.0}).build()
    return built


def _settings(longest: int) -> dict[str, Any]:
    names = dict(zip(("unk_token", "pad_token", "bos_token", "eos_token"), SPECIALS, strict=True))
    return names | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": min(longest, math.inf),
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # a user's </s> is text
        "model_input_names": ["input_ids", "attention_mask"],
    }


def _write_json(path: Path, tree: dict[str, Any]) -> None:
    replace_file(path, json.dumps(tree, ensure_ascii=False, indent=2) + "\n")
