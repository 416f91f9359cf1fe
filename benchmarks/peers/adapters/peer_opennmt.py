"""OpenNMT-py: its trainer with its bucketed token batches."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import common
import onmt.trainer
import torch
from common import PAD, Job, Window
from onmt.bin.train import _get_parser
from onmt.bin.train import train as onmt_train


def options(job: Job) -> dict[str, Any]:
    """The configuration file as a tree."""
    sizes, size = job.sizes, job.sizes["size"]
    vocabulary = str(job.data / "onmt-vocabulary.txt")
    kind: dict[str, Any] = {
        "encoder_type": "transformer", "decoder_type": "transformer", "position_encoding": True,
        "heads": sizes["heads"], "transformer_ff": sizes["ffn"], "layers": sizes["layers"],
        "attention_dropout": [0.0],
    }  # fmt: skip
    if job.recurrent:
        kind = {
            "encoder_type": "brnn", "decoder_type": "rnn", "rnn_type": "GRU", "layers": 1,
            "global_attention": "mlp", "input_feed": 1, "bridge": True,
        }  # fmt: skip
    return kind | {
        "data": {
            "train": {
                "path_src": str(job.data / "train.src"), "path_tgt": str(job.data / "train.tgt"),
                "transforms": [], "weight": 1,
            }
        },
        "src_vocab": vocabulary, "tgt_vocab": vocabulary, "share_vocab": True,
        "share_embeddings": True, "share_decoder_embeddings": True,
        "hidden_size": size, "word_vec_size": size, "dropout": [common.DROPOUT],
        "batch_type": "tokens", "batch_size": job.batch_tokens, "normalization": "tokens",
        "bucket_size": 29_000, "num_workers": 0, "accum_count": [1], "optim": "adam",
        "learning_rate": common.RATE, "max_grad_norm": 1.0, "label_smoothing": common.SMOOTHING,
        "param_init_glorot": True, "param_init": 0, "train_steps": 1_000_000,
        "save_checkpoint_steps": 1_000_000, "valid_steps": 1_000_000, "report_every": 100,
        "save_model": str(job.folder / "model"), "seed": 1, "world_size": 1, "gpu_ranks": [],
    }  # fmt: skip


def train(job: Job) -> dict[str, Any]:
    torch.set_num_threads(job.threads)
    window, parameters = Window(job.seconds), 0
    step = onmt.trainer.Trainer._gradient_accumulation

    def watched(self: Any, batches: list[Any], *rest: Any) -> Any:
        nonlocal parameters
        parameters = sum(p.numel() for p in self.model.parameters())
        pad = self.train_loss.padding_idx
        expected, source = batches[0]["tgt"][:, 1:, 0], batches[0]["src"]
        targets = int((expected != pad).sum())
        real = targets + int(batches[0]["srclen"].sum())
        window.begin(targets, real, source.numel() + expected.numel())
        return step(self, batches, *rest)

    onmt.trainer.Trainer._gradient_accumulation = watched
    place = job.folder / "config.yaml"
    place.write_text(json.dumps(options(job)), encoding="utf-8", newline="\n")  # JSON is YAML
    parsed, _ = _get_parser().parse_known_args(["-config", str(place)])
    with contextlib.suppress(common.Done):
        onmt_train(parsed)
    return window.report() | {
        "parameters": parameters,
        "versions": common.versions("OpenNMT-py", "torch"),
        "batches": "its buckets of sorted sentences, rows × longest ≤ 4,096",
    }


if __name__ == "__main__":
    assert PAD == 1
    common.main({"train": train})
