"""Which programs are measured at what, in which mode: a table for each group.

``mode`` is what an adapter takes; ``said`` is how the table of the docs names it.
"""

from __future__ import annotations

from dataclasses import dataclass

SETUP = 25.0  # seconds of starting, reading and warming up, for the estimate of the time


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    peer: str
    mode: str
    said: str
    threads: int | None = None  # None: those of the comparison


@dataclass(frozen=True)
class Group:
    """A table: what its rows do, on which shape; ``cases`` times the window is a row's time."""

    what: str  # train, decode, batches or cells
    shape: str
    rows: tuple[Row, ...]
    cases: float = 1.0
    slow: float = 1.0  # how much longer than SETUP the warm-up takes

    @property
    def name(self) -> str:
        return f"{self.what}-{self.shape}"

    def seconds(self, window: float) -> float:
        """What one round takes, about."""
        return len(self.rows) * (self.cases * window + SETUP * self.slow)


OURS = (Row("foveate", "fp32", "foveate, fp32"), Row("foveate", "bf16", "foveate, bf16"))
JOEYNMT = Row("joeynmt", "fp32", "JoeyNMT, fp32")
OPENNMT = Row("opennmt", "fp32", "OpenNMT-py, fp32")
EOLE = Row("eole", "fp32", "Eole, fp32")
TORCH = (
    Row("torch", "fp32", "torch.nn.Transformer, tutorial loop, fp32"),
    Row("torch", "fp32-bucketed", "torch.nn.Transformer, fp32, bucketed"),
    Row("torch", "bf16-bucketed", "torch.nn.Transformer, bf16 autocast, bucketed"),
)
HUGGINGFACE = (
    Row("huggingface", "fp32", "HF Marian + Seq2SeqTrainer, fp32, random batches"),
    Row("huggingface", "fp32-grouped", "HF, fp32, grouped by length"),
    Row("huggingface", "bf16-grouped", "HF, bf16 autocast, grouped by length"),
)
CTRANSLATE2 = (
    Row("ctranslate2", "fp32", "CTranslate2, fp32, 1 worker"),
    Row("ctranslate2", "fp32x2", "CTranslate2, fp32, 2 workers"),
    Row("ctranslate2", "bf16", "CTranslate2, bf16"),
    Row("ctranslate2", "int8", "CTranslate2, int8, 1 worker"),
    Row("ctranslate2", "int8x2", "CTranslate2, int8, 2 workers"),
)
ENGINE = (
    Row("foveate", "int8", "foveate's engine, int8, 1 thread", 1),
    Row("foveate", "int8", "foveate's engine, int8, 2 threads", 2),
)
PEER = (
    Row("ctranslate2", "int8", "CTranslate2, int8, 1 thread", 1),
    Row("ctranslate2", "int8", "CTranslate2, int8, 2 threads", 2),
)

GROUPS = (
    Group("train", "small", (*OURS, JOEYNMT, *TORCH, *HUGGINGFACE, OPENNMT, EOLE)),
    Group(
        "decode",
        "small",
        (
            *OURS,
            Row("foveate", "fp32x2", "foveate, fp32, 2 processes"),
            Row("foveate", "int8", "foveate, int8"),
            Row("foveate", "int8x2", "foveate, int8, 2 processes"),
            JOEYNMT,
            Row("huggingface", "fp32", "HF generate, fp32"),
            Row("huggingface", "bf16", "HF generate, bf16"),
            *CTRANSLATE2,
        ),
        cases=5.0,
    ),
    Group("batches", "small", (*ENGINE, *PEER), cases=14.0),
    Group("batches", "tiny11", (*ENGINE, *PEER), cases=14.0),
    Group("train", "rnnsearch", (*OURS, JOEYNMT, OPENNMT, EOLE)),
    Group("train", "base", (*OURS, JOEYNMT, *TORCH[1:], *HUGGINGFACE[1:], OPENNMT, EOLE), slow=4.0),
    Group(
        "cells",
        "256",
        (
            *OURS,
            Row("torch", "fp32", "torch.nn, fp32"),
            Row("torch", "bf16", "torch.nn, bf16 autocast"),
            Row("huggingface", "fp32", "HF Mamba without its kernels, fp32"),
            Row("huggingface", "bf16", "HF Mamba without its kernels, bf16 autocast"),
        ),
        cases=2.0,
        slow=0.5,
    ),
)
