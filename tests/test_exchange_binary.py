"""Marian's binary files, written here in their documented layout."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from foveate.exchange.base import ExchangeError
from foveate.exchange.marian import read_marian
from foveate.exchange.marian_binary import read_binary

OPTIONS = (
    "type: transformer\nenc-depth: 1\ndec-depth: 1\ntransformer-heads: 2\ndec-cell: ssru\n"
    "transformer-dim-ffn: 16\ntransformer-ffn-activation: relu\ntied-embeddings-all: true\n"
    "transformer-decoder-autoreg: rnn\n\0"
)


def part(kind: int, shape: tuple[int, ...], data: bytes) -> tuple[int, tuple[int, ...], bytes]:
    return kind, shape, data + bytes(-len(data) % 256)


def binary(parts: dict[str, tuple[int, tuple[int, ...], bytes]]) -> bytes:
    names = [name.encode() + b"\0" for name in parts]
    head = struct.pack("<2Q", 1, len(parts))
    for name, (kind, shape, data) in zip(names, parts.values(), strict=True):
        head += struct.pack("<4Q", len(name), kind, len(shape), len(data))
    head += b"".join(names)
    head += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, shape, _ in parts.values())
    gap = -(len(head) + 8) % 256
    data = b"".join(data for _, _, data in parts.values())
    return head + struct.pack("<Q", gap) + bytes(gap) + data


def quantised(name: str, matrix: np.ndarray, kind: int) -> tuple[int, tuple[int, ...], bytes]:
    scale = np.float32(127 / np.abs(matrix).max())
    numbers = np.rint(matrix * scale).astype(np.int8)
    numbers = numbers if name.endswith("Wemb") else numbers.T
    return part(kind, matrix.shape, numbers.tobytes() + scale.tobytes())


def model(kind: int = 0x4101) -> bytes:
    draw = np.random.default_rng(3)
    parts = {"special:model.yml": part(0x101, (len(OPTIONS),), OPTIONS.encode())}
    for name, shape in (("Wemb", (11, 8)), ("decoder_l1_rnn_W", (8, 8)),
                        ("decoder_l1_rnn_Wf", (8, 8)), ("decoder_l1_ffn_W1", (8, 16))):  # fmt: skip
        parts[name] = quantised(name, draw.normal(size=shape).astype(np.float32), kind)
        parts[f"{name}_QuantMultA"] = part(0x404, (1, 1), np.float32(9).tobytes())
    parts["decoder_l1_rnn_bf"] = part(0x404, (1, 8), np.arange(8, dtype=np.float32).tobytes())
    return binary(parts)


def assert_rounded(tensors: Mapping[str, Tensor], right: Mapping[str, np.ndarray]) -> None:
    """Assert that matrices are those that were rounded to int8; a table has a row of zeros more."""
    for name, matrix in right.items():
        padded = np.pad(matrix, ((0, ".rnn." not in name and ".fc1" not in name), (0, 0)))
        step = np.abs(matrix).max() / 127
        assert np.abs(tensors[name].numpy() - padded).max() <= step / 2 + 1e-6


@pytest.mark.parametrize("kind", [0x4101, 0x10001])  # Firefox, Marian
def test_an_ssru_is_read_from_int8_matrices(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "model.enfr.intgemm.alphas.bin"
    path.write_bytes(model(kind))
    family, settings, tensors = read_marian(path)
    assert family.config.decoder.kind == "ssru"
    assert settings["vocab_size"] == 12
    draw = np.random.default_rng(3)
    shapes = ((11, 8), (8, 8), (8, 8), (8, 16))
    table, value, forget, inner = (draw.normal(size=shape) for shape in shapes)
    inside = "model.decoder.layers.0"
    right = {"model.shared.weight": table, f"{inside}.rnn.value.weight": value.T}
    right |= {f"{inside}.rnn.forget.weight": forget.T, f"{inside}.fc1.weight": inner.T}
    assert_rounded(tensors, right)
    assert tensors[f"{inside}.rnn.forget.bias"].tolist() == list(range(8))


def test_firefox_tables_of_two_vocabularies(tmp_path: Path) -> None:
    draw, options = np.random.default_rng(3), OPTIONS.replace("all: true", "all: false")
    tables = {f"{side}_Wemb": draw.normal(size=(rows, 8)).astype(np.float32)
              for side, rows in (("encoder", 11), ("decoder", 7))}  # fmt: skip
    parts = {"special:model.yml": part(0x101, (len(options),), options.encode())}
    parts |= {name: quantised(name, table, 0x4101) for name, table in tables.items()}
    path = tmp_path / "model.enzh.intgemm.alphas.bin"
    path.write_bytes(binary(parts))
    _, settings, tensors = read_marian(path)
    assert [settings[k] for k in ("tie", "vocab_size", "decoder_vocab_size")] == ["target", 12, 8]
    assert tensors["final_logits_bias"].shape == (1, 8)
    names = ("model.shared.weight", "model.decoder.embed_tokens.weight")
    assert_rounded(tensors, dict(zip(names, tables.values(), strict=True)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda file: file[:-300], "it ends before"),
        (lambda file: file[:40], "it ends before"),
        (lambda file: struct.pack("<Q", 7) + file[8:], "it begins with 7"),
        (lambda file: file[:8] + struct.pack("<Q", 2**60) + file[16:], "it ends before"),
        (lambda file: file[:24] + struct.pack("<Q", 0x4400) + file[32:], "has the type 0x4400"),
        (lambda file: file.replace(struct.pack("<2i", 11, 8), struct.pack("<2i", 99, 8), 1),
         "has the shape"),
        (lambda file: b"", "not a model that Marian wrote"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named(tmp_path: Path, change, says: str) -> None:
    path = tmp_path / "model.intgemm.bin"
    path.write_bytes(change(model()))
    with pytest.raises(ExchangeError, match=says):
        read_marian(path)


@pytest.mark.parametrize(
    ("name", "tensor", "says"),
    [
        ("decoder_ff_logit_out_Wt", quantised("", np.ones((3, 4), np.float32), 0x4101),
         r"_Wt is an int8 table .* import the model\.npz"),
        ("Wemb", part(0x10002, (2, 2), bytes(12)), "Wemb has the type 0x10002"),
    ],
)  # fmt: skip
def test_a_tensor_that_is_not_read_is_named(tmp_path: Path, name: str, tensor, says: str) -> None:
    path = tmp_path / "model.intgemm.bin"
    path.write_bytes(binary({name: tensor}))
    with pytest.raises((ValueError, ExchangeError), match=says):
        read_binary(path)
