"""The native library where it cannot be built, and OpenMP's threads beside other programs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from foveate.models.encoder_decoder import Model
from foveate.nn.native import kernels
from foveate.nn.native.kernels import X86, library, without_kernels
from foveate.nn.spec import Tokens


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A cache without a library."""
    monkeypatch.setattr("foveate.system.cache_folder", lambda: tmp_path)
    kernels._loaded.cache_clear()
    yield
    kernels._loaded.cache_clear()


@pytest.mark.usefixtures("anew")
def test_without_a_compiler_nothing_is_said(monkeypatch, capsys) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    assert library() is None
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("anew")
def test_a_compiler_that_fails_is_told_of_once(monkeypatch, capsys, tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'kernels.c:1: error: no such thing' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert library() is None and library() is None
    output = capsys.readouterr().err
    assert output.count("native kernels were not built") == 1 and "no such thing" in output


@pytest.mark.skipif(not X86 or library() is None, reason="others are left as they are")
def test_denormal_numbers_are_zero_in_all_threads_for_a_while() -> None:
    """In PyTorch's threads, which are those of our kernels, and as before in what comes later."""
    small = torch.full((1 << 18,), 1e-39)

    def zeros() -> int:
        return int(((small * 1.0) == 0).sum())

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert zeros() == 0
        with kernels.flushing_denormals():
            assert zeros() == len(small)
            with kernels.flushing_denormals():
                pass
            assert zeros() == len(small)
        assert zeros() == 0
    finally:
        torch.set_num_threads(threads)


BUSY = """
import os, subprocess, sys, time, torch
from foveate.nn.native import kernels
kernels.CHECK, kernels.CALM = 0.1, 1.0
kernels.sleep_at_barriers()
torch.set_num_threads(2)
x = torch.ones(300, 300)
def until(busy):
    end = time.monotonic() + 60
    while kernels.machine_is_busy() != busy and time.monotonic() < end:
        x @ x
    time.sleep(0.5)
    print(kernels.machine_is_busy(), len(os.listdir("/proc/self/task")) - alone, flush=True)
x @ x
alone = len(os.listdir("/proc/self/task"))
loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
         for _ in range(os.cpu_count() + 1)]
try:
    until(True)
finally:
    for loop in loops:
        loop.kill()
kernels._waited = dict
until(False)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="waiting times are Linux's")
@pytest.mark.parametrize("setting", [{}, {"OMP_WAIT_POLICY": "ACTIVE"}], ids=["watched", "own"])
def test_threads_sleep_at_barriers_while_others_need_the_cores(setting: dict[str, str]) -> None:
    """A team of threads beyond the cores is there meanwhile, unless the user has decided."""
    own = [name for name in os.environ if name.startswith(("OMP_", "GOMP_"))]
    env = {name: value for name, value in os.environ.items() if name not in own} | setting
    program = BUSY if not setting else BUSY.replace("+ 60", "+ 2")
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    (busy, more), calm = (line.split() for line in done.stdout.splitlines())
    assert calm == ["False", "0"]
    assert (busy, int(more)) == ("False", 0) if setting else busy == "True" and int(more) >= 2


@pytest.mark.parametrize("kind", ["mamba", "ssru", "transformer", "recurrent"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16])
@pytest.mark.parametrize("only", ["", "bias", "kernel", "log_a", "skip"])
def test_parameters_of_any_type_are_read_as_what_they_are(kind, dtype, only) -> None:
    """All parameters, or those of a name alone: what the modules compute without kernels."""
    size = {"embedding_size": 16} if kind == "recurrent" else {}
    decoder = {"kind": kind, "hidden_size": 16, "num_layers": 1, "dropout": 0.0, **size}
    torch.manual_seed(3)
    model = Model.Config.parse({"kind": "language_model", "decoder": decoder}).build(Tokens(20))
    for name, parameter in model.named_parameters():
        if only in name:
            parameter.data = parameter.data.to(dtype)
    ids = torch.randint(4, 20, (3, 9))

    def outcome() -> tuple[list[Tensor], str]:
        model.zero_grad()
        try:
            logits = model(ids)
            logits.float().logsumexp(dim=-1).sum().backward()
        except RuntimeError as error:  # that PyTorch cannot multiply two types
            return [], str(error)
        grads = [p.grad.float() for p in model.parameters() if p.grad is not None]
        return [logits.detach().float(), *grads], ""

    own, said = outcome()
    with without_kernels():
        right, other = outcome()
    assert bool(said) == bool(other)
    for a, b in zip(own, right, strict=True):
        scale = max(1.0, float(b.abs().max()))
        torch.testing.assert_close(a / scale, b / scale, rtol=0, atol=0.03)
