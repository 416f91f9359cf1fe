"""Runs with other models than they were trained with: weights drawn by chance, the same data."""

from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from foveate.decode.beam import Beam
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.run import Run
from foveate.run.training import train
from small_runs import CONFIGS, config_file, made

SIZES: dict[str, Any] = {
    "hidden_size": 16, "num_heads": 2, "num_layers": 2, "ffn_size": 20, "dropout": 0.0
}  # fmt: skip


def at_scale(names: Iterable[Any], small: Container[Any]) -> list[Any]:
    """Parameters of a test: those of the small suite, the others for ``make proofs``."""
    return [n if n in small else pytest.param(n, marks=pytest.mark.scale) for n in names]


def with_model(run: Run, config: Any, seed: int = 0) -> Run:
    """The run with a model of a config; weights are large, so that outputs differ."""
    torch.manual_seed(seed)
    model = run.task.build(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    search = Beam.Config(beam_size=3, max_ratio=1.0, max_extra=4)
    config = run.config.model_copy(update={"model": config, "decode": search})
    return Run(run.path, config, run.task, model.eval(), run.checkpoint)


def transformer(run: Run, tie: str = "all", seed: int = 0, **parts: Any) -> Run:
    """A translator of Transformer layers; ``parts`` are fields of both sides."""
    encoder = TransformerEncoder.Config.parse(SIZES | parts)
    decoder = TransformerDecoder.Config.parse(SIZES | parts)
    return with_model(run, EncoderDecoder.Config(encoder=encoder, decoder=decoder, tie=tie), seed)


def translator(folder: Path, tokenizer: str, steps: int = 2) -> Run:
    """The small Transformer with another tokenizer."""
    made(folder, [])
    config = config_file(folder, CONFIGS["transformer"], steps, name=tokenizer)
    changed = f"task.tokenizer={TOKENIZERS[tokenizer]}"
    return train(config, [changed], folder=folder / f"run-{tokenizer}")


TOKENIZERS = {
    "bpe": '{ kind = "bpe", vocab_size = 300 }',
    "unigram": '{ kind = "unigram", vocab_size = 290 }',
    "byte": '{ kind = "byte" }',
    "character": '{ kind = "character" }',
    "symbol": '{ kind = "symbol" }',
    "word": '{ kind = "word", min_frequency = 1 }',
}
