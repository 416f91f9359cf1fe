"""Where every score with every position looks after learning to copy and to reverse.

    python benchmarks/looking.py [--steps 400]

Trains one small Transformer for each, on sequences of up to six different tokens, and writes
docs/results/learnt-attention.json: the share of outputs that are right, and the share of tokens at
which the best head of the cross-attention, or one of the two, looks most at the very token that is
being written.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from foveate.models.encoder_decoder import EncoderDecoder
from foveate.nn.attention import Attention
from foveate.spec import Tokens
from laws.conftest import changed, defaults
from laws.test_learning import VOCABULARY, learn, seen, share_right, transformer
from machine import describe, write


def trained(cell: tuple[str, str, str, int]) -> dict[str, str | float]:
    """One model: what it is, and its shares."""
    score, position, task, steps = cell
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformer(
        position=defaults("position")[position],
    )
    look = Attention.Config(score=defaults("score")[score])
    config = changed(config, decoder=changed(config.decoder, cross_attention=look))
    model: EncoderDecoder = config.build(Tokens(VOCABULARY), Tokens(VOCABULARY))
    backwards = task == "reverse"
    learn(model, backwards, steps, rate=5e-3)
    right, looks = share_right(model, backwards), seen(model, backwards).float()
    shares = {
        "right": right,
        "best_head": round(float(looks.mean(dim=(0, 2)).max()), 4),
        "some_head": round(float(looks.amax(dim=1).mean()), 4),
    }
    return {"score": score, "position": position, "task": task} | shares


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=400)
    steps = options.parse_args().steps
    cells = [
        (score, position, task, steps)
        for score in defaults("score")
        for position in defaults("position")
        for task in ("copy", "reverse")
    ]
    found = []
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:
        for one in processes.map(trained, cells):
            found.append(one)
            print(*(f"{value!s:16}" for value in one.values()), flush=True)
    write("learnt-attention", {"steps": steps, "models": found, "machine": describe()})


if __name__ == "__main__":
    main()
