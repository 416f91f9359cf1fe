"""Hugging Face transformers: Marian with Seq2SeqTrainer and `generate`; Mamba without its kernels.

``fp32``: the trainer's random batches; ``…-grouped``: its batches by length; ``bf16-…``: its bf16.
"""

from __future__ import annotations

import contextlib
from typing import Any

import common
import torch
from common import BOS, EOS, PAD, Job, Window
from torch import nn
from transformers import MarianConfig, MarianMTModel, Seq2SeqTrainer, Seq2SeqTrainingArguments

IGNORED = -100  # the trainer's label of what is no target


class Watched(Seq2SeqTrainer):
    """The trainer, whose steps are counted."""

    window: Window

    def training_step(self, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        source, labels = inputs["input_ids"], inputs["labels"]
        targets = int((labels != IGNORED).sum())
        real = targets + int(inputs["attention_mask"].sum())
        self.window.begin(targets, real, source.numel() + labels.numel())
        return super().training_step(model, inputs, *rest, **named)


def build(job: Job) -> MarianMTModel:
    torch.manual_seed(1)
    sizes, sides = job.sizes, ("encoder", "decoder")
    values: dict[str, Any] = {f"{side}_layers": sizes["layers"] for side in sides}
    values |= {f"{side}_attention_heads": sizes["heads"] for side in sides}
    values |= {f"{side}_ffn_dim": sizes["ffn"] for side in sides}
    return MarianMTModel(
        MarianConfig(
            vocab_size=len(job.vocabulary()), d_model=sizes["size"], max_position_embeddings=512,
            dropout=common.DROPOUT, attention_dropout=0.0, activation_dropout=0.0,
            activation_function="relu", scale_embedding=True, pad_token_id=PAD,
            bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS,
            forced_eos_token_id=None, share_encoder_decoder_embeddings=True, **values,
        )
    )  # fmt: skip


def collate(examples: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    def pad(name: str, value: int) -> torch.Tensor:
        rows = [torch.tensor(e[name]) for e in examples]
        return nn.utils.rnn.pad_sequence(rows, True, value)

    ids = pad("input_ids", PAD)
    labels = pad("labels", IGNORED)
    start = torch.full_like(labels[:, :1], BOS)
    read = torch.cat((start, labels[:, :-1].masked_fill(labels[:, :-1] == IGNORED, PAD)), dim=1)
    return {
        "input_ids": ids,
        "attention_mask": (ids != PAD).long(),
        "labels": labels,
        "decoder_input_ids": read,  # the trainer's smoothed loss wants them from here
    }


def train(job: Job) -> dict[str, Any]:
    torch.set_num_threads(job.threads)
    sources, targets = job.ids("train")
    data = [
        {"input_ids": [*source, EOS], "labels": [*target, EOS]}
        for source, target in zip(sources, targets, strict=True)
    ]
    grouped = job.mode.endswith("grouped")
    rows = (common.sorted_rows if grouped else common.random_rows)(job, sources, targets)
    model = build(job)
    trainer = Watched(
        model=model,
        args=Seq2SeqTrainingArguments(
            output_dir=str(job.folder), use_cpu=True, bf16=job.mode.startswith("bf16"),
            per_device_train_batch_size=rows, max_steps=1_000_000, learning_rate=common.RATE,
            max_grad_norm=1.0, label_smoothing_factor=common.SMOOTHING, report_to="none",
            save_strategy="no", logging_steps=100, disable_tqdm=True, seed=1,
            remove_unused_columns=False, dataloader_pin_memory=False,
            train_sampling_strategy="group_by_length" if grouped else "random",
        ),
        train_dataset=data,
        data_collator=collate,
    )  # fmt: skip
    trainer.window = Window(job.seconds)
    with contextlib.suppress(common.Done):
        trainer.train()
    return trainer.window.report() | facts(model) | {"batches": f"{rows} sentences each"}


def decode(job: Job) -> dict[str, Any]:
    torch.set_num_threads(job.threads)
    model = build(job).eval()
    known = {piece: i for i, piece in enumerate(job.vocabulary())}
    if job.mode == "bf16":
        model = model.to(torch.bfloat16)

    def item(sentences: list[common.Pieces], beam: int) -> None:
        batch = [torch.tensor([*(known[p] for p in line), EOS]) for line in sentences]
        ids = nn.utils.rnn.pad_sequence(batch, True, PAD)
        model.generate(
            input_ids=ids, attention_mask=(ids != PAD).long(), num_beams=beam, do_sample=False,
            min_new_tokens=common.OUTPUT, max_new_tokens=common.OUTPUT,
        )  # fmt: skip

    def search(sentences: list[common.Pieces], beam: int, rows: int | None) -> None:
        for n in range(0, len(sentences), rows or 64):
            item(sentences[n : n + (rows or 64)], beam)

    with torch.inference_mode():
        return common.speeds(job, search) | facts(model)


def cells(job: Job) -> dict[str, Any]:
    """Milliseconds of a Mamba layer forward and backward: 4 rows, 128 steps, 256 wide."""
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    torch.set_num_threads(job.threads)
    config = MambaConfig(hidden_size=256, state_size=16, expand=2, conv_kernel=4)
    layer = MambaMixer(config, layer_idx=0)
    bf16 = torch.autocast("cpu", dtype=torch.bfloat16, enabled=job.mode == "bf16")
    with bf16:
        result = common.milliseconds(torch, layer, (4, 128), job.seconds)
    return {"milliseconds": {"mamba": result}, "versions": common.versions("transformers", "torch")}


def facts(model: nn.Module) -> dict[str, Any]:
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "versions": common.versions("transformers", "accelerate", "torch"),
    }


if __name__ == "__main__":
    common.main({"train": train, "decode": decode, "cells": cells})
