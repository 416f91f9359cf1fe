"""Which numbers the matrix products run in: chosen by what the machine has, and said aloud.

Lives here: the choice and the autocast context. Does not live here: the weights, gradients and
optimiser state, which are fp32 always.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

Name = Literal["auto", "fp32", "bf16"]
WORTH = 1.2  # bf16 must be so many times as fast: it costs casts, and digits


@dataclass(frozen=True)
class Precision:
    """The numbers of matrix products on a device, and in one line why it is these."""

    name: Literal["fp32", "bf16"]
    device: str
    why: str

    def context(self) -> contextlib.AbstractContextManager[object]:
        """Within it PyTorch runs matrix products in this precision."""
        if self.name == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device, dtype=torch.bfloat16)


def resolve(name: Name, device: torch.device | str = "cpu") -> Precision:
    """``auto`` is bf16 where the device multiplies it faster than fp32, and fp32 elsewhere."""
    kind = torch.device(device).type
    if name != "auto":
        return Precision(name, kind, f"precision {name}, as the config says")
    found = _ABLE.get(kind, lambda: None)()
    if not found:
        return Precision("fp32", kind, f"precision fp32 (auto): this {kind} has no bf16 products")
    gain = _gain(kind)
    chosen: Literal["fp32", "bf16"] = "bf16" if gain > WORTH else "fp32"
    why = f"{found}, whose products ran {gain:.1f} times as fast as fp32 here, measured"
    return Precision(chosen, kind, f"precision {chosen} (auto): {why}")


def _gain(device: str) -> float:
    """Time of an fp32 product over that of the same in bf16, the quickest of some of each.

    Some processors have bf16 instructions that are slower than their fp32 ones.
    """
    best = {torch.float32: float("inf"), torch.bfloat16: float("inf")}
    for _ in range(8):  # in turn, so that what else the machine does meets both
        for dtype in best:
            a = torch.ones(1024, 512, dtype=dtype, device=device)
            started = time.perf_counter()
            float((a @ a.T)[0, 0])
            best[dtype] = min(best[dtype], time.perf_counter() - started)
    return best[torch.float32] / best[torch.bfloat16]


def _cpu() -> str | None:
    """The instructions for bf16 products of this processor that PyTorch will use."""
    if "AVX512" not in torch.backends.cpu.get_cpu_capability():
        return None  # not there, or turned off by ATEN_CPU_CAPABILITY
    flags = _cpu_flags()
    names = [name for name in ("amx_bf16", "avx512_bf16") if name in flags]
    return f"this CPU has {' and '.join(names)}" if names else None


def _cpu_flags() -> set[str]:
    """What the processor can do: as Linux lists it, or else what PyTorch finds out itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        able = getattr(torch.cpu, "_is_avx512_bf16_supported", None)  # absent before torch 2.6
        return {"avx512_bf16"} if able is not None and able() else set()
    found = next((line for line in lines if line.startswith("flags")), "")
    return set(found.partition(":")[2].split())


def _cuda() -> str | None:
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        return None
    return f"{torch.cuda.get_device_name()} has bf16"


_ABLE: dict[str, Callable[[], str | None]] = {"cpu": _cpu, "cuda": _cuda}
