"""Each instruction set is chosen, forced and refused as it should be, and computes the same."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from foveate.cli.doctor import examine
from foveate.engine import compiled as engine
from foveate.engine.building import SETS
from foveate.engine.compiled import (
    CompiledModel,
    CompiledSearch,
    EngineFailure,
    LibraryError,
    Settings,
    instruction_sets,
    library,
)
from foveate.nn.spec import Labels, Tokens
from foveate.system import c_compiler
from test_engine_compiled import (
    END,
    SIZE,
    START,
    built,
    compiled,
    mamba,
    pair,
    recurrent,
    texts,
    transformer,
)

Force = Callable[[str], None]
OWN = instruction_sets()
X86 = "sse4" in OWN


@pytest.fixture
def force(monkeypatch: pytest.MonkeyPatch) -> Iterator[Force]:
    """Let a set run in place of the best one."""

    def run(name: str) -> None:
        monkeypatch.setenv("FOVEATE_ISA", name)
        engine.loaded.cache_clear()
        assert engine.loaded().instruction_set == name
        assert library().instruction_set() == name.encode()

    yield run
    engine.loaded.cache_clear()


def test_the_best_set_of_the_processor_runs_unless_another_is_forced(force: Force) -> None:
    assert set(OWN) <= set(SETS) and len(OWN) == len(set(OWN))
    engine.loaded.cache_clear()
    assert engine.loaded().instruction_set == OWN[-1] and "the best of" in engine.loaded().why
    for name in OWN:
        force(name)
        assert "FOVEATE_ISA names it" in engine.loaded().why
    facts = examine(seconds=0.01).facts["processor"]
    assert facts["engine"].startswith(f"{name}: FOVEATE_ISA names it, of {', '.join(OWN)}")


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="no /proc/cpuinfo to compare with")
def test_the_probe_finds_what_the_system_says() -> None:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    flags = set(next(ln for ln in lines if ln.startswith(("flags", "Features"))).split())
    avx512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}
    needed = {
        "sse4": {"sse4_1", "ssse3"}, "avx2": {"avx2", "fma"}, "avxvnni": {"avx2", "avx_vnni"},
        "avx512vnni": avx512, "amx": avx512 | {"amx_tile", "amx_int8"}, "neon": {"asimd"},
        "dotprod": {"asimddp"},
    }  # fmt: skip
    assert set(OWN) - {"base"} == {name for name, each in needed.items() if each <= flags}


@pytest.mark.parametrize("name", ["avx3", *(name for name in SETS if name not in OWN)])
def test_a_set_that_cannot_run_is_refused_with_the_remedy(name, monkeypatch) -> None:
    monkeypatch.setenv("FOVEATE_ISA", name)
    engine.loaded.cache_clear()
    fault = "no such instruction set" if name == "avx3" else "this processor lacks it"
    with pytest.raises(LibraryError, match=f"FOVEATE_ISA={name}: {fault}; name one of {OWN[0]}"):
        library()
    report = examine(seconds=0.01)
    assert report.facts["processor"]["engine"] == "none"
    assert any(fault in sentence for sentence in report.advice)
    engine.loaded.cache_clear()


def test_no_library_and_no_compiler_names_what_to_install(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    engine.loaded.cache_clear()
    with pytest.raises(LibraryError, match="install gcc or clang, or `pip install ziglang`"):
        engine.loaded()
    monkeypatch.setenv("CC", str(tmp_path / "absent"))
    with pytest.raises(LibraryError, match=r"absent"):
        engine.loaded()


def test_the_libraries_of_a_wheel_run_without_a_compiler(monkeypatch, tmp_path) -> None:
    (tmp_path / "libraries").mkdir()
    for name in ("probe", f"engine-{OWN[-1]}"):
        file = tmp_path / "libraries" / f"{name}{engine.SUFFIX}"
        shutil.copy(engine._compiled(name), file)
    monkeypatch.setattr(engine, "FOLDER", tmp_path)
    monkeypatch.setattr(engine, "_compiled", None)
    engine.loaded.cache_clear()
    engine.instruction_sets.cache_clear()
    assert engine.loaded().functions._name == str(file)
    engine.loaded.cache_clear()


@pytest.mark.skipif(len(OWN) < 2 or not c_compiler(), reason="one set, or no compiler of its own")
def test_an_old_compiler_falls_back_to_the_next_set(monkeypatch, tmp_path) -> None:
    old = tmp_path / "old"
    refusal = f"*{SETS[OWN[-1]][-1]}*) echo error: unknown >&2; exit 1"
    script = f'case "$*" in {refusal}; esac; exec cc "$@"'
    old.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    old.chmod(0o755)
    monkeypatch.setenv("CC", str(old))
    engine.loaded.cache_clear()
    loaded = engine.loaded()
    assert loaded.instruction_set == OWN[-2] == loaded.functions.instruction_set().decode()
    assert f"does not compile engine-{OWN[-1]}: error: unknown" in loaded.why
    engine.loaded.cache_clear()


def test_without_zig_the_engine_for_browsers_says_what_it_lacks(monkeypatch) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    with pytest.raises(LibraryError, match=r"for browsers is not compiled: pip install ziglang"):
        engine.web_engine("engine-wasm")


@pytest.mark.slow
@pytest.mark.skipif(not X86 or not shutil.which("objdump"), reason="x86-64 and objdump")
@pytest.mark.parametrize(
    ("name", "holds", "lacks"),
    [
        ("base", "mulps", "pmaddubsw"), ("sse4", "\tpmaddubsw", "%ymm"),
        ("avx2", "vpmaddubsw", "%zmm|vpdpbusd"), ("avxvnni", "{vex} vpdpbusd", "%zmm|vpsignb"),
        ("avx512vnni", "vpdpbusd.*%zmm", "tdpbusd|vpmaddubsw"), ("amx", "tdpbusd", "vpmaddubsw"),
    ],
)  # fmt: skip
def test_a_library_holds_the_instructions_of_its_set(name: str, holds: str, lacks: str) -> None:
    command = ["objdump", "-d", engine._compiled(f"engine-{name}")]
    code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(holds, code) and not re.search(lacks, code)


# ------------------------------------------------------------------- all sets compute the same
SETTINGS = Settings(START, END, 4, 4, 0.6)


def whole_number_model(labels: int = 70) -> nn.Module:
    """Embeddings through maps without a bias: y = s_x s_w (W_q x_q), nothing is added in fp32."""
    encoder = transformer(norm="none", norm_order="plain", position="none", hidden_size=64)
    tree = {"kind": "classifier", "pooling": "first", "encoder": encoder}
    model = built(tree, Tokens(SIZE), Labels(tuple(map(str, range(labels)))))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.ndim > 1:  # rows of the largest numbers, of one sign and of both
            nn.init.ones_(parameter.data[4])
            nn.init.constant_(parameter.data[5], -1)
            parameter.data[6, ::2] = -parameter.data[4, ::2]
    return model


def values(model: CompiledModel, ids: list[int]) -> np.ndarray:
    """What the map onto values puts out for each token, in the first attention."""
    search = CompiledSearch(model, SETTINGS)
    [taken] = search.stages([(0, "value")], lambda: search.label_scores(ids, 70))
    return taken.reshape(len(ids), 64)


def test_sums_of_int8_maps_are_the_same_whole_numbers_on_every_set(force: Force) -> None:
    model = whole_number_model()
    weight = model.encoder.layers[0].self_attention.value.weight.detach().numpy()
    whole, scale = engine.quantized(weight)
    table, by = engine.quantized(model.encoder.stem.embedding.weight.detach().numpy())
    for count in (1, 2, 3, 8, 13, 16, 24, 29, 33):
        ids = [4, 5, 6, *np.random.default_rng(count).integers(4, SIZE, 30)][:count]
        x = table[ids] * (by[ids] * np.float32(model.encoder.stem.scale))[:, None]
        step = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
        quantized = np.rint(x * (np.float32(127) / np.abs(x).max(axis=1, keepdims=True)))
        sums = quantized.astype(np.int64) @ whole.astype(np.int64).T
        right = sums.astype(np.float32) * (step * scale)
        for name in OWN:
            force(name)
            assert np.array_equal(values(compiled(model, int8=True), ids), right), (name, count)


ADDITIVE = {"query": "previous", "score": {"kind": "additive", "own_matrix": True}}
BOTH = [
    (transformer(), transformer()), (recurrent(cell="lstm"), recurrent(attention=ADDITIVE)),
    (mamba(), transformer(kind="ssru", feed_forward="gelu")),
    (transformer(hidden_size=56, position="rope"), transformer(hidden_size=56, position="t5_causal",
     norm="rms_norm", attention={"kind": "full", "score": "cosine", "normalizer": "entmax15"})),
]  # fmt: skip


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("both", BOTH)
def test_outputs_are_the_same_on_every_set_and_in_int8_all_their_bits(force, both, int8) -> None:
    model, sources, first = pair(*both), texts(30), []
    for name in OWN:
        force(name)
        search = CompiledSearch(compiled(model, int8), SETTINGS)
        outputs = [o for each in search.outputs(sources, [30] * 30) for o in each]
        first = first or outputs
        if int8:
            assert outputs == first
        assert [(o.ids, o.ended) for o in outputs] == [(o.ids, o.ended) for o in first]
        log_p = [o.log_probability for o in first]
        assert [o.log_probability for o in outputs] == pytest.approx(log_p, abs=1e-4)


def test_bytes_of_minus_128_are_refused_on_every_set(force, monkeypatch) -> None:
    def unsymmetric(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        whole, scale = engine_quantized(weight)
        return np.where(whole == -127, np.int8(-128), whole), scale

    model, engine_quantized = pair(transformer(), transformer()), engine.quantized
    monkeypatch.setattr(engine, "quantized", unsymmetric)
    for name in OWN:
        force(name)
        with pytest.raises(EngineFailure, match="does not fit"):
            compiled(model, int8=True)
