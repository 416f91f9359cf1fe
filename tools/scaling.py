"""Training on many GPUs, on paper: python tools/scaling.py

Computes ``docs/results/scaling.json`` from the numbers stated below, and writes its tables into
``docs/reference/scaling.md`` between the marks. Nothing here is measured but the memory of a plan
of batches; a measured speed of one device goes into ``Model.utilisation``, and all else follows.
"""

from __future__ import annotations

import json
import math
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE, RESULT = (
    ROOT / "docs" / "reference" / "scaling.md",
    ROOT / "docs" / "results" / "scaling.json",
)
WORLDS = (8, 64, 512)


@dataclass(frozen=True)
class Machine:
    """Stated: the data sheet of H100 SXM and of a node of eight with a 400 Gbit/s card for each."""

    flops: float = 989e12  # a second, dense bf16 products
    memory: float = 80e9  # bytes of a GPU
    node: int = 8  # GPUs
    inside: float = 450e9  # bytes a second out of a GPU, NVLink, one direction
    between: float = 8 * 50e9  # bytes a second out of a node
    latency: float = 20e-6  # seconds of one message between nodes
    word: float = 200e-6  # seconds of one small sum over all ranks on the processors
    spread: float = 0.02  # of the time of a batch between ranks, as a standard deviation
    host_memory: float = 2e12  # bytes of a node
    share: float = 0.6  # of a GPU's memory for weights, gradients and moments


@dataclass(frozen=True)
class Model:
    """A shape of the literature; ``utilisation`` of the GPU's products is assumed."""

    name: str
    layers: int
    hidden: int
    vocab: int
    length: int  # tokens of a sequence
    batch: int  # tokens of a step on a GPU
    utilisation: float
    layer: int = 12  # D² parameters: 12 of a decoder-only layer; 28 of a pair with cross-attention

    @property
    def parameters(self) -> float:
        """N = layers · c · D² + V · D, the embedding tied to the output."""
        return self.layers * self.layer * self.hidden**2 + self.vocab * self.hidden

    @property
    def flops(self) -> float:
        """Of a token, both passes: 6 N + 12 · layers · D · length (Kaplan et al., 2020)."""
        return 6 * self.parameters + 12 * self.layers * self.hidden * self.length


MACHINE = Machine()
MODELS = (
    Model("Transformer base (Vaswani et al., 2017)", 6, 512, 37_000, 32, 32_768, 0.25, 28),
    Model("Transformer big (Vaswani et al., 2017)", 6, 1024, 37_000, 32, 32_768, 0.35, 28),
    Model("GPT-2 small (Radford et al., 2019)", 12, 768, 50_257, 1024, 65_536, 0.35),
    Model("GPT-2 XL (Radford et al., 2019)", 48, 1600, 50_257, 1024, 32_768, 0.40),
    Model("7 B, Llama's size (Touvron et al., 2023)", 32, 4096, 32_000, 2048, 16_384, 0.40),
)
TRAINED = 16  # bytes a parameter: weight, gradient, two moments, fp32
BUCKET = 25 * 2**20  # bytes that DDP sums at once
WIRE = 4  # bytes a parameter in a collective: fp32


def speed(machine: Machine, world: int) -> float:
    """Bytes a second that a ring over so many GPUs passes on."""
    return machine.inside if world <= machine.node else min(machine.inside, machine.between)


def replicas(machine: Machine, model: Model, world: int) -> tuple[float, float]:
    """Seconds of a step, and bytes that a rank sends: a ring all-reduce of the gradients.

    bytes = 2 (W − 1)/W · 4 N. It runs beside the backward pass, two thirds of the computing, but
    for the last bucket; what is longer than that adds to the step.
    """
    compute = computing(machine, model, world)
    sent = 2 * (world - 1) / world * WIRE * model.parameters
    talk = sent / speed(machine, world) + hops(machine, world)
    last = 2 * (world - 1) / world * BUCKET / speed(machine, world)
    return compute + max(last, talk - 2 / 3 * compute), sent


def shards(machine: Machine, model: Model, world: int) -> tuple[float, float]:
    """The same of shards: two all-gathers and one reduce-scatter, bytes = 3 (W − 1)/W · 4 N.

    They run beside all computing but the first layer's gathering.
    """
    compute = computing(machine, model, world)
    sent = 3 * (world - 1) / world * WIRE * model.parameters
    talk = sent / speed(machine, world) + 3 * model.layers * hops(machine, world)
    first = sent / 3 / model.layers / speed(machine, world)
    return max(compute, talk) + first, sent


def computing(machine: Machine, model: Model, world: int) -> float:
    """Seconds until the slowest of W ranks is done: t (1 + σ √(2 ln W)), and three small sums."""
    alone = model.batch * model.flops / (model.utilisation * machine.flops)
    words = 3 * machine.word if world > 1 else 0.0
    return alone * (1 + machine.spread * (2 * math.log(world)) ** 0.5) + words


def hops(machine: Machine, world: int) -> float:
    """Seconds of the messages of one collective: a tree over the nodes."""
    nodes = max(1, world // machine.node)
    return machine.latency * max(1, (nodes - 1).bit_length())


KINDS: dict[str, Callable[[Machine, Model, int], tuple[float, float]]] = {
    "ddp": replicas,
    "fsdp": shards,
}


def row(machine: Machine, model: Model, world: int) -> dict[str, Any]:
    """What a model does on so many GPUs, in the way that ``train.parallel = "auto"`` takes."""
    fits = TRAINED * model.parameters <= machine.share * machine.memory
    kind = "ddp" if fits or world == 1 else "fsdp"
    seconds, sent = KINDS[kind](machine, model, world)
    alone = model.utilisation * machine.flops / model.flops
    return {
        "model": model.name,
        "gpus": world,
        "parallel": kind,
        "parameters": model.parameters,
        "tokens_per_second": world * model.batch / seconds,
        "efficiency": model.batch / seconds / alone,
        "sent_bytes_per_step": sent,
        "tokens_per_step": world * model.batch,
    }


def limits(machine: Machine, world: int, plan_bytes: float) -> dict[str, Any]:
    """The largest model and corpus, and what bounds them.

    Shards: every rank builds the whole model on its GPU before it keeps its part (4 bytes a
    parameter), and rank 0 holds weights and moments in the host's memory to write a checkpoint (12)
    besides its plain copy (4).
    """
    room = machine.share * machine.memory
    bounds = {
        "weights, gradients, moments in shards": world * room / TRAINED,
        "each GPU builds the whole model": 0.9 * machine.memory / 4,
        "rank 0 gathers a checkpoint in host memory": 0.8 * machine.host_memory / 16,
    }
    why = min(bounds, key=lambda name: bounds[name])
    return {
        "gpus": world,
        "largest_ddp": room / TRAINED,
        "largest_fsdp": bounds[why],
        "bound": why,
        "bounds": bounds,
        "largest_pairs": 0.5 * machine.host_memory / machine.node / plan_bytes,
    }


def plan_bytes(pairs: int = 200_000) -> float:
    """Measured: bytes a pair that planning an epoch takes at its peak, on each rank."""
    import numpy as np

    from foveate.data.batches import BatchPlan

    lengths = np.random.default_rng(1).integers(3, 60, (pairs, 2)).astype(np.int32)
    tracemalloc.start()
    BatchPlan(lengths, 32_768, 1).epoch(0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round(peak / pairs, 1)


def compute(bytes_of_plan: float) -> dict[str, Any]:
    """All that the page shows, from what is stated here and one measured number."""
    return {
        "command": "python tools/scaling.py",
        "status": "on paper: utilisation is assumed, nothing was run on these machines",
        "machine": asdict(MACHINE),
        "models": [asdict(model) for model in MODELS],
        "plan_bytes_per_pair": bytes_of_plan,
        "rows": [row(MACHINE, model, world) for model in MODELS for world in (1, *WORLDS)],
        "limits": [limits(MACHINE, world, bytes_of_plan) for world in WORLDS],
    }


def tables(result: dict[str, Any]) -> dict[str, str]:
    """The tables of the page by the name of their marks."""
    head = ["model", "parameters", "GPUs", "mode", "tokens/s", "efficiency", "sent per step, GPU"]
    body = [
        [
            results["model"],
            f"{results['parameters'] / 1e6:,.0f} M",
            f"{results['gpus']}",
            results["parallel"] if results["gpus"] > 1 else "one",
            f"{three_digits(results['tokens_per_second']):,.0f}",
            f"{100 * results['efficiency']:.0f}%",
            f"{results['sent_bytes_per_step'] / 1e9:,.2f} GB" if results["gpus"] > 1 else "",
        ]
        for results in result["rows"]
    ]
    caps = [
        [
            f"{results['gpus']}",
            f"{results['largest_ddp'] / 1e9:.1f} B",
            f"{results['largest_fsdp'] / 1e9:.1f} B",
            results["bound"],
            f"{results['largest_pairs'] / 1e9:.1f} · 10⁹",
        ]
        for results in result["limits"]
    ]
    limit_head = ["GPUs", "largest with ddp", "largest with fsdp", "limited by", "pairs in a plan"]
    machine = result["machine"]
    stated = [
        ["GPU matrix products, bf16, dense", f"{machine['flops'] / 1e12:.0f} TFLOP/s"],
        ["GPU memory", f"{machine['memory'] / 1e9:.0f} GB"],
        ["share for weights, gradients, moments", f"{100 * machine['share']:.0f}%"],
        ["GPUs per node", f"{machine['node']}"],
        ["bandwidth out of a GPU, within a node", f"{machine['inside'] / 1e9:.0f} GB/s"],
        ["bandwidth out of a node", f"{machine['between'] / 1e9:.0f} GB/s"],
        ["latency between nodes", f"{machine['latency'] * 1e6:.0f} µs"],
        ["each of three small sums per step", f"{machine['word'] * 1e6:.0f} µs"],
        ["variation in batch time", f"{100 * machine['spread']:.0f}% (σ, assumed)"],
        ["memory per node", f"{machine['host_memory'] / 1e12:.0f} TB"],
        [
            "plan of an epoch (measured)",
            f"{result['plan_bytes_per_pair']:.0f} bytes per pair and rank",
        ],
    ]
    stated += [
        [f"{m['name']}: utilisation", f"{100 * m['utilisation']:.0f}% (assumed)"]
        for m in result["models"]
    ]
    return {
        "stated": table(["assumption", "value"], stated),
        "speed": table(head, body),
        "limits": table(limit_head, caps),
    }


def three_digits(number: float) -> float:
    """A number rounded to three significant digits."""
    return float(f"{number:.3g}")


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def page(text: str, result: dict[str, Any]) -> str:
    """The page with its tables put between their marks."""
    for name, made in tables(result).items():
        before, mark, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not (mark and end):
            sys.exit(f"{PAGE} has no marks of {name}")
        text = f"{before}{mark}{made}\n{end}{after}"
    return text


def main() -> None:
    """Write the result and the page."""
    result = compute(plan_bytes())
    RESULT.write_text(
        json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n"
    )
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), result), encoding="utf-8", newline="\n")
    print(f"{RESULT.relative_to(ROOT)} and {PAGE.relative_to(ROOT)} written")


if __name__ == "__main__":
    main()
