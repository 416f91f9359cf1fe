"""Eole: its trainer with its bucketed token batches."""

from __future__ import annotations

import contextlib
from typing import Any

import common
import eole.trainer
import torch
from common import Job, Window
from eole.config.run import TrainConfig
from eole.train_single import main as eole_train


def options(job: Job) -> dict[str, Any]:
    """The configuration file as a tree."""
    sizes, size = job.sizes, job.sizes["size"]
    vocabulary = str(job.data / "onmt-vocabulary.txt")
    model: dict[str, Any] = {
        "architecture": "transformer", "heads": sizes["heads"], "transformer_ff": sizes["ffn"],
        "embeddings": {
            "word_vec_size": size, "position_encoding": True,
            "position_encoding_type": "SinusoidalInterleaved",
        },
    }  # fmt: skip
    if job.recurrent:  # "custom": its "rnn" reads in one direction only
        model = {
            "architecture": "custom", "embeddings": {"word_vec_size": size}, "input_feed": 1,
            "encoder": {"encoder_type": "brnn", "rnn_type": "GRU"},
            "decoder": {
                "decoder_type": "rnn", "rnn_type": "GRU", "global_attention": "mlp",
                "bidirectional_encoder": True,
            },
        }  # fmt: skip
    return {
        "data": {
            "train": {
                "path_src": str(job.data / "train.src"), "path_tgt": str(job.data / "train.tgt"),
                "transforms": [], "weight": 1,
            }
        },
        "src_vocab": vocabulary, "tgt_vocab": vocabulary, "share_vocab": True, "seed": 1,
        "save_data": str(job.folder), "overwrite": True, "report_every": 100,
        "model": model | {
            "layers": sizes["layers"], "hidden_size": size, "share_embeddings": True,
            "share_decoder_embeddings": True,
        },
        "training": {
            "batch_type": "tokens", "batch_size": job.batch_tokens, "normalization": "tokens",
            "bucket_size": 29_000, "num_workers": 0, "accum_count": [1], "optim": "adam",
            "learning_rate": common.RATE, "max_grad_norm": 1.0, "compute_dtype": "fp32",
            "label_smoothing": common.SMOOTHING, "dropout": [common.DROPOUT],
            "attention_dropout": [0.0], "param_init_method": "xavier_uniform",
            "train_steps": 1_000_000, "save_checkpoint_steps": 1_000_000,
            "valid_steps": 1_000_000, "model_path": str(job.folder / "model"),
            "world_size": 1, "gpu_ranks": [],
        },
    }  # fmt: skip


def train(job: Job) -> dict[str, Any]:
    torch.set_num_threads(job.threads)
    window, parameters = Window(job.seconds), 0
    step = eole.trainer.Trainer._train_step

    def watched(self: Any, batches: list[Any], *rest: Any, **named: Any) -> Any:
        nonlocal parameters
        parameters = sum(p.numel() for p in self.model.parameters())
        pad = self.train_loss.padding_idx
        expected, source = batches[0]["tgt"][:, 1:], batches[0]["src"]
        targets = int((expected != pad).sum())
        real = targets + int(batches[0]["srclen"].sum())
        window.begin(targets, real, source.numel() + expected.numel())
        return step(self, batches, *rest, **named)

    eole.trainer.Trainer._train_step = watched
    config = TrainConfig(**options(job))
    config._validate_vocab_config()
    with contextlib.suppress(common.Done):
        eole_train(config, device_id=-1)
    return window.report() | {
        "parameters": parameters,
        "versions": common.versions("eole", "torch"),
        "batches": "its buckets of sorted sentences, rows × longest ≤ 4,096",
    }


if __name__ == "__main__":
    common.main({"train": train})
