"""Target tokens/s in training and sentences/s in decoding, on Multi30k en–fr (FOVEATE_DATA).

    python benchmarks/speed.py [--model transformer-small] [--seconds 30]

Training counts real target tokens, no padding. Decoding forces every output to 20 tokens, so that
an untrained model does the work of a trained one.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from foveate.data.plan import Plan
from foveate.decode.beam import Beam
from foveate.decode.greedy import Greedy
from foveate.decode.steps import Search
from foveate.models.encoder_decoder import DecoderSteps
from foveate.run import RunConfig
from foveate.tasks import translation
from foveate.train.config import TrainConfig
from foveate.train.precision import resolve
from machine import describe, write

LENGTH = 20


class Endless(DecoderSteps):
    """Steps in which no output ends by itself."""

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        logits = super().step(ids)
        logits[:, translation.EOS] = -torch.inf
        return logits


def training(task: Any, config: RunConfig, seconds: float) -> dict[str, Any]:
    """Steps as the trainer does them, for so many seconds after a short warm-up."""
    torch.manual_seed(1)
    model = task.build(config.model).train()
    objective = config.objective.build()
    precision = resolve("auto")
    optimizer = config.train.optimizer.build(model)
    batches = Plan(task.lengths("train"), config.train.batch_tokens, 1).epoch(0)
    tokens, started, loss = 0, 0.0, None
    for number, indices in enumerate(batches * 100):
        if number == 5:
            tokens, started = 0, time.perf_counter()
        with precision.context():
            loss = task.loss(model, task.batch("train", indices), objective)
        (loss.total / loss.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        tokens += loss.count
        if started and time.perf_counter() - started > seconds:
            break
    spent = time.perf_counter() - started
    return {
        "target_tokens_per_second": round(tokens / spent),
        "precision": precision.why,
        "parameters": sum(p.numel() for p in model.parameters()),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def decoding(task: Any, config: RunConfig, search: Search, count: int, rows: int) -> float:
    """Sentences/s over ``count`` test sentences in batches of about ``rows``."""
    translation.DecoderSteps = Endless  # type: ignore[misc]
    torch.manual_seed(1)
    model = task.build(config.model).eval()
    sources = task.source_tokenizer.encode_ids(task.corpus("test").sources[:count])
    budget = rows * (sum(map(len, sources)) // len(sources) + 1)
    task.search(model, sources[: 2 * rows], search, budget)
    started = time.perf_counter()
    task.search(model, sources, search, budget)
    return round(len(sources) / (time.perf_counter() - started), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="transformer-small")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--vocabulary", type=int, default=8000)
    options = parser.parse_args()
    config = RunConfig.parse(
        {
            "task": {
                "kind": "translation",
                "source": "multi30k/{split}.en",
                "target": "multi30k/{split}.fr",
                "tokenizer": {"kind": "bpe", "vocab_size": options.vocabulary},
            },
            "data": {"splits": {"valid": "val", "test": "test_2016_flickr"}},
            "model": options.model,
            "train": {"batch_tokens": 4096, "max_steps": 1},
        }
    )
    assert isinstance(config.train, TrainConfig)
    task = config.task.build(config.data)
    with tempfile.TemporaryDirectory() as folder:
        task.prepare(Path(folder), 1)
    limits = {"max_ratio": 0.0, "max_extra": LENGTH}
    beam = Beam.Config.parse({"beam_size": 5, **limits}).build()
    greedy = Greedy.Config.parse(limits).build()
    result = {
        "what": f"{options.model}, Multi30k en-fr, BPE {options.vocabulary:,} joint",
        "machine": describe(),
        "training": training(task, config, options.seconds),
        "sentences_per_second": {
            "beam 5, batch 32": decoding(task, config, beam, 1000, 32),
            "greedy, batch 32": decoding(task, config, greedy, 1000, 32),
            "beam 5, batch 1": decoding(task, config, beam, 60, 1),
            "greedy, batch 1": decoding(task, config, greedy, 100, 1),
            "beam 5, whole corpus": decoding(task, config, beam, 1000, 200),
        },
    }
    print(write(f"speed-{options.model}", result).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
