"""A plain loop around `torch.nn.Transformer`, as the usual tutorial has it; and torch.nn's cells.

``fp32``: batches of as many sentences, drawn by chance, padded. ``…-bucketed``: sentences of like
lengths stand together, up to 4,096 tokens a batch. ``bf16-…``: the same under autocast.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import common
import torch
from common import BOS, EOS, PAD, Job, Window
from torch import Tensor, nn


class Translator(nn.Module):
    """Embedding and positions, nn.Transformer, and the embedding again as the output layer."""

    def __init__(self, vocabulary: int, sizes: dict[str, int]) -> None:
        super().__init__()
        self.size = sizes["size"]
        self.embedding = nn.Embedding(vocabulary, self.size, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=self.size**-0.5)
        self.dropout = nn.Dropout(common.DROPOUT)
        self.transformer = nn.Transformer(
            self.size, sizes["heads"], sizes["layers"], sizes["layers"], sizes["ffn"],
            dropout=common.DROPOUT, batch_first=True, norm_first=True,
        )  # fmt: skip
        at = torch.arange(512)[:, None]
        rate = torch.exp(torch.arange(0, self.size, 2) * (-math.log(10_000.0) / self.size))
        table = torch.stack(((at * rate).sin(), (at * rate).cos()), dim=-1).flatten(1)
        self.register_buffer("table", table)

    def embed(self, ids: Tensor) -> Tensor:
        vectors = self.embedding(ids) * math.sqrt(self.size)
        return self.dropout(vectors + self.table[: ids.shape[1]])

    def forward(self, source: Tensor, read: Tensor) -> Tensor:
        hidden = source == PAD
        future = nn.Transformer.generate_square_subsequent_mask(read.shape[1])
        output = self.transformer(
            self.embed(source), self.embed(read), tgt_mask=future, tgt_is_causal=True,
            src_key_padding_mask=hidden, memory_key_padding_mask=hidden,
        )  # fmt: skip
        return output @ self.embedding.weight.T


def padded(rows: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], True, PAD)


def batches(job: Job) -> Iterator[list[int]]:
    """Indices of batches without end."""
    sources, targets = job.ids("train")
    longer = common.longer_sides(sources, targets)
    draw = random.Random(1)
    rows = common.random_rows(job, sources, targets)
    while True:
        order = list(range(len(sources)))
        draw.shuffle(order)
        cut = [order[n : n + rows] for n in range(0, len(order), rows)]
        if job.mode.endswith("bucketed"):
            key = {i: (longer[i], len(sources[i]), draw.random()) for i in order}
            cut = by_budget(sorted(order, key=key.__getitem__), longer, job.batch_tokens)
            draw.shuffle(cut)
        yield from cut


def by_budget(order: list[int], longer: list[int], budget: int) -> list[list[int]]:
    """Runs of sentences with rows × longest side ≤ 4,096."""
    result: list[list[int]] = [[]]
    for i in order:
        if (len(result[-1]) + 1) * longer[i] > budget:
            result.append([])
        result[-1].append(i)
    return result


def train(job: Job) -> dict[str, Any]:
    torch.set_num_threads(job.threads)
    torch.manual_seed(1)
    sources, targets = job.ids("train")
    model = Translator(len(job.vocabulary()), job.sizes).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=common.RATE, betas=(0.9, 0.98))
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=common.SMOOTHING)
    window = Window(job.seconds)
    bf16 = torch.autocast("cpu", dtype=torch.bfloat16, enabled=job.mode.startswith("bf16"))
    with contextlib.suppress(common.Done):
        for indices in batches(job):
            source = padded([[*sources[i], EOS] for i in indices])
            target = padded([[BOS, *targets[i], EOS] for i in indices])
            read, expected = target[:, :-1], target[:, 1:]
            real = int((expected != PAD).sum())
            both = real + int((source != PAD).sum())
            window.begin(real, both, source.numel() + expected.numel())
            with bf16:
                logits = model(source, read)
                loss = criterion(logits.flatten(0, 1), expected.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return window.report() | {
        "parameters": sum(p.numel() for p in model.parameters()),
        "versions": common.versions("torch"),
        "batches": "rows of one number, by chance" if job.mode == "fp32" else "bucketed",
    }


def cells(job: Job) -> dict[str, Any]:
    """Milliseconds forward and backward of a layer of each cell: 128 rows, 20 steps, 256 wide."""
    torch.set_num_threads(job.threads)
    kinds: dict[str, Callable[..., nn.Module]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
    bf16 = torch.autocast("cpu", dtype=torch.bfloat16, enabled=job.mode == "bf16")
    result = {}
    for name, kind in kinds.items():
        layer = kind(256, 256, batch_first=True)
        with bf16:
            result[name] = common.milliseconds(
                torch, lambda x, layer=layer: layer(x)[0], (128, 20), job.seconds
            )
    return {"milliseconds": result, "versions": common.versions("torch")}


if __name__ == "__main__":
    common.main({"train": train, "cells": cells})
