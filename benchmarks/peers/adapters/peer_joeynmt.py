"""JoeyNMT: its TrainManager with its token batches, its greedy and beam search."""

from __future__ import annotations

import contextlib
from typing import Any

import common
import torch
from common import Job, Window
from joeynmt.batch import Batch
from joeynmt.config import parse_global_args
from joeynmt.prediction import prepare
from joeynmt.search import search
from joeynmt.training import TrainManager

ROWS = 64  # sentences of a batch of the validation set


class Watched(TrainManager):
    """The trainer, whose steps are counted."""

    window: Window

    def _train_step(self, batch: Batch) -> Any:
        real = int((batch.src != self.model.pad_index).sum()) + batch.ntokens
        self.window.begin(batch.ntokens, real, batch.src.numel() + batch.trg.numel())
        return super()._train_step(batch)


class Looking(TrainManager):
    """The trainer, who translates the validation set now and then, greedily."""

    job: Job
    translate: Any
    taken = 0

    def _train_step(self, batch: Batch) -> Any:
        if self.taken and self.taken % self.job.every == 0:
            self.model.eval()
            outputs = self.translate(self.job.lines("val", "src"))
            self.model.train()
            common.look(self.taken, outputs=outputs)
        if self.taken >= common.MOST_STEPS:
            raise common.Done
        self.taken += 1
        return super()._train_step(batch)


def part(job: Job) -> dict[str, Any]:
    """The encoder or decoder of a shape."""
    size = job.sizes["size"]
    embeddings = {"embedding_dim": size, "scale": True, "dropout": common.DROPOUT}
    if job.recurrent:
        return {
            "type": "recurrent", "rnn_type": "gru", "num_layers": 1, "hidden_size": size,
            "embeddings": embeddings | {"scale": False}, "dropout": common.DROPOUT,
        }  # fmt: skip
    return {
        "type": "transformer", "num_layers": job.sizes["layers"], "num_heads": job.sizes["heads"],
        "hidden_size": size, "ff_size": job.sizes["ffn"], "dropout": common.DROPOUT,
        "embeddings": embeddings, "layer_norm": "pre",
    }  # fmt: skip


def config(job: Job) -> dict[str, Any]:
    """The configuration file as a tree."""
    recurrent = job.recurrent
    language = {"level": "word", "voc_file": str(job.data / "joey-vocabulary.txt")}
    decoder = part(job)
    encoder = part(job) | ({"bidirectional": True} if recurrent else {})
    if recurrent:
        decoder |= {"attention": "bahdanau", "init_hidden": "bridge", "input_feeding": True}
    return {
        "name": "peer", "model_dir": str(job.folder), "use_cuda": False, "fp16": False,
        "random_seed": 1, "normalization": "tokens",
        "data": {
            "train": str(job.data / "train"), "dev": str(job.data / "val"),
            "test": str(job.data / "test"), "dataset_type": "plain",
            "src": language | {"lang": "src"}, "trg": language | {"lang": "tgt"},
        },
        "training": {
            "batch_size": job.batch_tokens, "batch_type": "token", "epochs": 10_000,
            "optimizer": "adamw", "learning_rate_min": 1e-9,
            "learning_rate": common.BEST_RATE if job.every else common.RATE,
            "scheduling": "warmupinversesquareroot",
            "learning_rate_warmup": common.WARM_UP if job.every else 4000,
            "clip_grad_norm": 1.0, "label_smoothing": common.SMOOTHING, "loss": "crossentropy",
            "validation_freq": 1_000_000, "logging_freq": 100, "normalization": "tokens",
        },
        "testing": {"beam_size": 5, "max_output_length": common.OUTPUT},
        "model": {
            "tied_embeddings": True, "tied_softmax": True, "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform", "encoder": encoder, "decoder": decoder,
        },
    }  # fmt: skip


def prepared(job: Job) -> tuple[Any, Any, Any, Any]:
    """The configuration, the model with its first weights, and its data."""
    torch.set_num_threads(job.threads)
    args = parse_global_args(config(job), rank=0, mode="train")
    model, data, valid, _ = prepare(args, rank=0, mode="train")
    return args, model, data, valid


def trainer_of(kind: Any, args: Any, model: Any) -> Any:
    return kind(
        rank=0, model=model, model_dir=args.model_dir, device=args.device, n_gpu=0,
        autocast=args.autocast, seed=args.seed, train_args=args.train, dev_args=args.test,
    )  # fmt: skip


def train(job: Job) -> dict[str, Any]:
    args, model, data, valid = prepared(job)
    trainer = trainer_of(Watched, args, model)
    trainer.window = Window(job.seconds)
    with contextlib.suppress(common.Done):
        trainer.train_and_validate(data, valid)
    return trainer.window.report() | facts(model)


def quality(job: Job) -> dict[str, Any]:
    """Train, with a look every so many steps; whoever reads them ends the process."""
    args, model, data, valid = prepared(job)
    trainer, run = trainer_of(Looking, args, model), searching(args, model, data)

    def translate(sentences: list[common.Pieces]) -> list[common.Pieces]:
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        outputs: dict[int, common.Pieces] = {}
        for start in range(0, len(order), ROWS):
            rows = order[start : start + ROWS]
            result, _, _ = run([sentences[i] for i in rows], 1, longest=common.LONGEST)
            texts = model.trg_vocab.arrays_to_sentences(arrays=result, cut_at_eos=True)
            outputs |= dict(zip(rows, texts, strict=True))
        return [outputs[i] for i in range(len(sentences))]

    trainer.job, trainer.translate = job, translate
    with contextlib.suppress(common.Done):
        trainer.train_and_validate(data, valid)
    return facts(model)


def decode(job: Job) -> dict[str, Any]:
    args, model, data, _ = prepared(job)
    model.eval()
    search_in = searching(args, model, data)

    def run(sentences: list[common.Pieces], beam: int, rows: int | None) -> Any:
        return search_in(sentences, beam, common.OUTPUT, min_output_length=common.OUTPUT)

    left_out = [name for name in common.CASES if "one by one" in name or "whole" in name]
    return common.speeds(job, run, left_out) | facts(model)


def searching(args: Any, model: Any, data: Any) -> Any:
    """Its search for one batch of sentences."""
    encode = data.sequence_encoder["src"]

    def run(sentences: list[common.Pieces], beam: int, longest: int, **forced: int) -> Any:
        ids, lengths, _ = encode(sentences, bos=False, eos=True)
        batch = Batch(
            src=torch.tensor(ids), src_length=torch.tensor(lengths), src_prompt_mask=None,
            trg=None, trg_prompt_mask=None, indices=torch.arange(len(ids)),
            device=args.device, pad_index=model.pad_index, eos_index=model.eos_index,
            is_train=False,
        )  # fmt: skip
        return search(model, batch, longest, beam, beam_alpha=1.0, **forced)

    return run


def facts(model: torch.nn.Module) -> dict[str, Any]:
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "versions": common.versions("joeynmt", "torch"),
        "batches": "its token batches: random sentences until rows × longest reach 4,096",
    }


if __name__ == "__main__":
    common.main({"train": train, "decode": decode, "quality": quality})
