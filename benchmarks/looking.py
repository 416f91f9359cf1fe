"""Where every score with every position looks after learning to copy and to reverse.

    python benchmarks/looking.py [--steps 400]

Trains one small Transformer for each, on sequences of up to six different tokens, and writes
docs/results/learnt-attention.json: the share of outputs that are right, and the share of tokens at
which the best head of the cross-attention looks most at the very token that is being written.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from foveate.models.encoder_decoder import EncoderDecoder
from foveate.nn.attention import Attention
from foveate.spec import Tokens
from laws.conftest import changed, defaults
from laws.test_learning import VOCABULARY, learn, share_right, share_seen, transformer
from machine import describe, write


def trained(score: str, position: str, backwards: bool, steps: int) -> dict[str, float]:
    """The two shares of one model."""
    torch.manual_seed(0)
    config = transformer(
        position=defaults("position")[position],
    )
    look = Attention.Config(score=defaults("score")[score])
    config = changed(config, decoder=changed(config.decoder, cross_attention=look))
    model: EncoderDecoder = config.build(Tokens(VOCABULARY), Tokens(VOCABULARY))
    learn(model, backwards, steps, rate=5e-3)
    return {"right": share_right(model, backwards), "looks": share_seen(model, backwards)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=400)
    steps = options.parse_args().steps
    torch.set_num_threads(1)
    found = []
    grid = itertools.product(defaults("score"), defaults("position"), ("copy", "reverse"))
    for score, position, task in grid:
        shares = trained(score, position, task == "reverse", steps)
        found.append({"score": score, "position": position, "task": task} | shares)
        print(f"{task:8} {score:16} {position:13} {shares}", flush=True)
    write("learnt-attention", {"steps": steps, "models": found, "machine": describe()})


if __name__ == "__main__":
    main()
