"""Where every score with every position looks after learning to copy and to reverse.

    python benchmarks/looking.py [--steps 800]

Trains one small Transformer for each on sequences of five different tokens, and writes
docs/results/learnt-attention.json: the share of outputs that are right, the share of tokens at
which the best head of the cross-attention looks most at the very token that is being written, and
that head's mean weights.

A map tells where a token came from only if the encoder leaves it where it is. So where places are
written into the embeddings, each place of the encoder sees only itself. Positions that act between
a query and a key (RoPE, ALiBi, T5) tell nothing to an encoder that sees one place; theirs sees all,
and may carry tokens to where it is easier to look.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch

import harness

sys.path.insert(0, str(harness.ROOT / "tests"))

from foveate.models.encoder_decoder import EncoderDecoder
from foveate.nn.attention import Attention
from foveate.nn.efficient_attention import LocalAttention
from foveate.spec import Tokens
from laws.conftest import changed, defaults
from laws.test_learning import LENGTH, VOCABULARY, learn, share_right, transformer, weights, written

IN_EMBEDDINGS = ("sinusoidal", "sinusoidal_halves", "concatenated", "learned")
ITSELF = LocalAttention.Config(window=1)


def build(score: str, position: str) -> EncoderDecoder:
    """One layer a side, two heads of 16."""
    config = transformer(position=defaults("position")[position], hidden_size=32, ffn_size=64)
    encoder, decoder = config.encoder, config.decoder
    if position in IN_EMBEDDINGS:
        encoder = changed(encoder, attention=ITSELF)
    decoder = changed(decoder, cross_attention=Attention.Config(score=defaults("score")[score]))
    torch.manual_seed(0)
    return changed(config, encoder=encoder, decoder=decoder).build(
        Tokens(VOCABULARY), Tokens(VOCABULARY)
    )


def trained(cell: tuple[str, str, str, int]) -> dict[str, Any]:
    """One model: what it is, its shares, its map."""
    score, position, task, steps = cell
    torch.set_num_threads(1)
    model, backwards = build(score, position), task == "reverse"
    learn(model, backwards, steps, rate=2e-3, shortest=LENGTH, longest=LENGTH)
    maps = weights(model, backwards)
    looks = (maps.argmax(dim=-1) == written(backwards)).float().mean(dim=(0, 2))  # (H,)
    return {
        "score": score,
        "position": position,
        "task": task,
        "encoder_sees": "itself" if position in IN_EMBEDDINGS else "all",
        "right": round(share_right(model, backwards), 3),
        "looks": round(float(looks.max()), 3),
        "map": [
            " ".join(f"{weight:.2g}" for weight in row)
            for row in maps.mean(dim=0)[int(looks.argmax())].tolist()
        ],
    }


def main(steps: int = 800) -> None:
    cells = [
        (score, position, task, steps)
        for score in defaults("score")
        for position in defaults("position")
        for task in ("copy", "reverse")
    ]
    result = []
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:
        for item in processes.map(trained, cells):
            result.append(item)
            print(*(f"{value!s:18}" for value in [*item.values()][:-1]), flush=True)
    harness.write("learnt-attention", {"steps": steps, "models": result})


if __name__ == "__main__":
    harness.run(main)
