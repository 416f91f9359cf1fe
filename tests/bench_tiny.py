"""A workload that trains in milliseconds, for the tests of measuring."""

from __future__ import annotations

from pathlib import Path

from foveate.data import synthetic

TOML = """
[task]
kind = "translation"
source = "{folder}/{{split}}.en"
target = "{folder}/{{split}}.fr"
tokenizer = {{ kind = "word", min_frequency = 1 }}

[model]
kind = "transformer-tiny"
encoder = {{ hidden_size = 16, num_heads = 2, num_layers = 1, ffn_size = 32, dropout = 0.0 }}
decoder = {{ hidden_size = 16, num_heads = 2, num_layers = 1, ffn_size = 32, dropout = 0.0 }}

[train]
batch_tokens = 128
max_steps = 1
precision = "fp32"
"""


def write(folder: Path) -> Path:
    """Data and a config in ``folder``; where the config is."""
    synthetic.write(folder, {"train": 60, "valid": 4, "test": 40})
    path = folder / "tiny.toml"
    path.write_text(TOML.format(folder=folder), encoding="utf-8")
    return path
