"""A tiny translator that writes its words in capitals, or would after more than a few steps."""

from pathlib import Path

from foveate.run import Run
from foveate.run.training import train

CONFIG = """
[task]
kind = "translation"
source = "{folder}/pairs.{{split}}.tsv"
tokenizer = {tokenizer}

[model]
kind = "encoder_decoder"
encoder = {{ kind = "transformer", hidden_size = 16, num_heads = 2, num_layers = 2, ffn_size = 32 }}
decoder = {{ kind = "transformer", hidden_size = 16, num_heads = 2, num_layers = 2, ffn_size = 32 }}

[train]
batch_tokens = 64
max_steps = 4
precision = "fp32"
log_every = 1
health_every = 2
save = {{ every = 4 }}
validation = {{ every = 2, samples = 2 }}
"""
LINES = "a b c\tA B C\nb a\tB A\nc a b\tC A B\n" * 4


WORDS = '{ kind = "word", min_frequency = 1 }'


def copier(folder: Path, tokenizer: str = "") -> Run:
    """Trained in a folder for four steps."""
    kind = f'"{tokenizer}"' if tokenizer else WORDS
    for split in ("train", "valid", "test"):
        (folder / f"pairs.{split}.tsv").write_text(LINES)
    (folder / "c.toml").write_text(CONFIG.format(folder=folder.as_posix(), tokenizer=kind))
    return train(folder / "c.toml", folder=folder / "run")
