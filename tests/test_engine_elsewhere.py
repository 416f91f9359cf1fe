"""The engine on processors that this machine is not: under emulators, with the outputs of this one.

They are compiled by zig (`pip install ziglang`); `make wheels` runs these tests with it.
"""

import importlib.util
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from foveate.engine.building import FLAGS, FOLDER, SETS
from foveate.engine.compiled import CompiledSearch, Settings, instruction_sets, quantized
from foveate.engine.program import Program
from foveate.system import c_compiler
from test_engine_compiled import END, SIZE, START, compiled, mamba, pair, recurrent, transformer

ROOT = Path(__file__).parent
LIMIT, WIDTH = 30, 4
# where it is the only compiler, `make test` has installed it, and has no need of wheels
HAS_ZIG = importlib.util.find_spec("ziglang") is not None and bool(c_compiler())
no_zig = pytest.mark.skipif(not HAS_ZIG, reason="no zig: pip install ziglang")
pytestmark = [pytest.mark.slow, no_zig]
INTEL, ARM = "x86_64-linux-musl", "aarch64-linux-musl"
NODE = """
const { WASI } = require("node:wasi");
const [name, file] = process.argv.slice(1);
const wasi = new WASI({ version: "preview1", args: [name, file], preopens: { "/": "/" } });
WebAssembly.instantiate(require("node:fs").readFileSync(name), wasi.getImportObject())
    .then(({ instance }) => process.exit(wasi.start(instance)));
"""
OWN = instruction_sets()
STAND_IN = (*SETS["avx512vnni"], "-include", str(ROOT / "engine_stand_in.h"))
FLAGS_OF = SETS | {
    "wasm": ("-msimd128",), "amx": STAND_IN, "avxvnni": (*STAND_IN, "-DSTAND_IN_AVXVNNI"),
}  # fmt: skip
PROCESSORS = [  # the set, what zig compiles for, what runs it, and the sets that the probe finds
    ("base", INTEL, ("qemu-x86_64", "-cpu", "qemu64"), "base"),
    ("sse4", INTEL, ("qemu-x86_64", "-cpu", "Nehalem"), "base sse4"),
    ("avx2", INTEL, ("qemu-x86_64", "-cpu", "max"), "base sse4 avx2"),
    ("neon", ARM, ("qemu-aarch64", "-cpu", "cortex-a53"), "neon"),
    ("dotprod", ARM, ("qemu-aarch64", "-cpu", "max"), "neon dotprod"),
    ("wasm", "wasm32-wasi", ("node", "--no-warnings", "-e", NODE), "base"),
    ("avx2", "x86_64-windows-gnu", ("wine",), " ".join(name for name in OWN if name != "amx")),
    *((name, INTEL, (), " ".join(OWN)) for name in SETS if {name, "avx512vnni"} & {*OWN}
      and name not in ("neon", "dotprod")),
]  # fmt: skip
MODELS = [
    (transformer(hidden_size=64, ffn_size=128), transformer(hidden_size=64)),
    (recurrent(cell="lstm"), recurrent(cell="lstm")),
    (mamba(), transformer(kind="ssru", feed_forward="gelu")),
]  # fmt: skip


def sources() -> list[list[int]]:
    rng = np.random.default_rng(4)
    return [[*rng.integers(4, SIZE, rng.integers(1, 20)).tolist(), END] for _ in range(40)]


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 8)


def described(model: nn.Module, int8: bool) -> bytes:
    """The file that the driver reads."""
    program = Program(model)
    parts = [struct.pack("<7i", len(program.numbers), len(program.tensors), len(sources()), START,
                         END, WIDTH, LIMIT), np.array(program.numbers).tobytes()]  # fmt: skip
    for name, tensor in program.tensors.items():
        array = tensor.numpy().astype(np.float32)
        rows, is_map = len(array) if array.ndim > 1 else 1, int8 and name in program.maps
        parts.append(struct.pack("<3i", is_map, rows, array.size // rows))
        parts += [each.tobytes() for each in (quantized(array) if is_map else [array])]
    for ids in sources():
        parts += [struct.pack("<i", len(ids)), np.array(ids, dtype=np.int32).tobytes()]
    return b"".join(map(padded, parts))


@cache
def driver(name: str, target: str, folder: Path) -> Path:
    """The driver for a set of a target, compiled."""
    flags = [flag.replace("x86-64", "x86_64") for flag in FLAGS_OF[name]]
    file = folder / f"{name}-{target}{'.exe' if 'windows' in target else ''}"
    code = ROOT / "engine_driver.c"
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-s", *FLAGS[:-2], *flags]
    subprocess.run([*command, f"-I{FOLDER}", str(code), "-o", str(file), "-lm"], check=True)
    return file


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drivers")


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("both", MODELS)
@pytest.mark.parametrize(("name", "target", "runner", "sets"), PROCESSORS)
def test_another_processor_gives_the_same_outputs(
    name: str, target: str, runner: Sequence[str], sets: str, both: tuple, int8: bool,
    folder: Path,
) -> None:  # fmt: skip
    if runner and not shutil.which(runner[0]):
        pytest.skip(f"no {runner[0]}")
    model, file = pair(*both), folder / f"{int8}.model"
    file.write_bytes(described(model, int8))
    search = CompiledSearch(compiled(model, int8), Settings(START, END, WIDTH, WIDTH, 0.6))
    right = search.outputs(sources(), [LIMIT] * len(sources()))
    command = [*runner, str(driver(name, target, folder)), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    probed, runs, *lines = done.stdout.splitlines()
    assert (probed, runs) == (sets, name)
    if name == "amx" and both is MODELS[0]:  # where the sizes are those of tiles
        assert (int(done.stderr.removesuffix(" products of tiles\n")) > 0) == int8
    outputs = [line.split() for line in lines]
    outputs.sort(key=lambda output: int(output[0]))  # stable: best first
    assert [int(n) for n, *_ in outputs] == [n for n, each in enumerate(right) for _ in each]
    written = [o.ids for each in right for o in each]
    assert [list(map(int, ids)) for _, _, *ids in outputs] == written
    log_p = [float(value) for _, value, *_ in outputs]
    assert log_p == pytest.approx([o.log_probability for each in right for o in each], abs=1e-4)
