"""One model on several devices: who holds which weights, and how gradients become those of all.

The gradient of a step is that of one process with all batches: Σ over ranks and batches of
∇total, over Σ count. So nothing here divides by the number of ranks.

Lives here: one process, replicas (DDP; Li et al., 2020) and shards (FSDP2; Zhao et al., 2023)
behind one face. Does not live here: what ranks say besides (`foveate.train.ranks`), and which
batches are whose (`foveate.train.feed.Portion.share`).
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from foveate.tasks.base import Loss
from foveate.train.checkpoint import own_tensors
from foveate.train.diagnose import why_not_finite
from foveate.train.files import TrainError
from foveate.train.job import Job
from foveate.train.moving_mean import MovingMean
from foveate.train.ranks import Ranks
from foveate.train.shards import own_part, whole

BYTES = 16  # of a parameter in training: weight, gradient and two moments in fp32
SHARE = 0.6  # of a device's memory that these may take; activations need the rest


class Parallel:
    """One process: all batches, weights and gradients are its own."""

    name = "none"

    def __init__(self, ranks: Ranks, job: Job) -> None:
        self.ranks, self.job = ranks, job
        self.moved: dict[str, int] = {}  # bytes by kind of collective, as this rank gave them
        self.plain: nn.Module = job.model  # where whole weights can be looked at, on rank 0

    def loss(self, batch: Any) -> Loss:
        """The loss of a batch, with its graph."""
        return self.job.task.loss(self.job.model, batch, self.job.objective)

    def gathering(self, last: bool) -> contextlib.AbstractContextManager[object]:
        """Around forward and backward of a batch; the last of a step brings gradients together."""
        return contextlib.nullcontext()

    def gradients(self) -> list[Tensor]:
        """What this rank holds of the gradients."""
        parameters = self.job.model.parameters()
        return [own_part(p.grad) for p in parameters if p.grad is not None]

    def norm(self, gradients: Sequence[Tensor]) -> float:
        """‖g‖ of the gradients of all weights, wherever they are."""
        return float(get_total_norm(gradients, foreach=True))

    @contextlib.contextmanager
    def measured(self, mean: MovingMean | None) -> Iterator[nn.Module]:
        """The whole model as it is measured, on rank 0: with the moving mean, where there is one.

        All ranks enter.
        """
        with contextlib.nullcontext() if mean is None else mean.applied():
            yield self.plain

    def why(
        self, turns: Sequence[Any], loss: float, forward: Callable[[Any], Loss], rate: float
    ) -> str:
        """Why numbers are not finite, by this rank's batches with their summed loss."""
        return why_not_finite(self.job.model, turns, forward, rate)

    def volume(self, steps: int) -> dict[str, float]:
        """MiB that a rank gave into collectives, for each step since last asked."""
        found = {f"{kind}_mib": round(n / steps / 2**20, 6) for kind, n in self.moved.items()}
        self.moved.update(dict.fromkeys(self.moved, 0))
        return found


class _WholeLoss(nn.Module):
    """From batch to loss as one module, for the hooks of PyTorch hang on its forward."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.model, self._job = job.model, job

    def forward(self, batch: Any) -> tuple[Tensor, int, dict[str, Tensor]]:
        loss = self._job.task.loss(self.model, batch, self._job.objective)
        return loss.total, loss.count, loss.logged


class Replicas(Parallel):
    """Every rank holds the model and steps alike; gradients are summed while they are formed.

    Bytes a step: one all-reduce of the gradients, 4 a parameter, and of which of them were used.
    """

    name = "ddp"

    def __init__(self, ranks: Ranks, job: Job) -> None:
        super().__init__(ranks, job)
        self.moved = {"all_reduced": 0}
        self._marks = 4 * sum(1 for p in job.model.parameters() if p.requires_grad)
        module = _WholeLoss(job)
        # one weight that nothing uses: where there is none, DDP complains of having looked for it
        module.unused = nn.Parameter(next(job.model.parameters()).new_zeros(1))
        with warnings.catch_warnings():  # of a name that newer PyTorch has for broadcast_buffers
            warnings.simplefilter("ignore", FutureWarning)
            self._replica = nn.parallel.DistributedDataParallel(
                module,
                broadcast_buffers=False,  # those of rank 0 are measured and saved
                find_unused_parameters=True,  # a batch need not use all of a model
                gradient_as_bucket_view=True,
            )
        self._replica.register_comm_hook(None, lambda _, bucket: self._sum(bucket))

    def loss(self, batch: Any) -> Loss:
        return Loss(*self._replica(batch))

    def gathering(self, last: bool) -> contextlib.AbstractContextManager[object]:
        if not last:
            return self._replica.no_sync()
        self.moved["all_reduced"] += self._marks
        return contextlib.nullcontext()

    def _sum(self, bucket: Any) -> torch.futures.Future[Tensor]:
        """Gradients ← their sums over ranks, where DDP by itself would take the mean."""
        buffer = bucket.buffer()
        self.moved["all_reduced"] += buffer.nbytes
        work: Any = dist.all_reduce(buffer, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    def why(
        self, turns: Sequence[Any], loss: float, forward: Callable[[Any], Loss], rate: float
    ) -> str:
        if loss == loss and abs(loss) != float("inf"):
            return "the loss of this rank is finite, but not what all ranks together make"
        return super().why(turns, loss, forward, rate)


class Shards(Parallel):
    """Every rank holds a part of each weight, its gradient and its moments.

    A layer's weights are gathered when it comes, forward and backward, and dropped after it; its
    gradients are summed and scattered. Bytes a batch: two all-gathers and one reduce-scatter of
    the parameters, at 4 each. Rank 0 keeps a plain copy, on the processor until it is measured.
    """

    name = "fsdp"

    def __init__(self, ranks: Ranks, job: Job) -> None:
        try:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import FSDPModule, fully_shard
        except ImportError:
            raise TrainError(
                f'train.parallel = "fsdp" needs a newer PyTorch than {torch.__version__}'
            ) from None

        super().__init__(ranks, job)
        self.moved = {"all_gathered": 0, "reduce_scattered": 0}
        self._device = next(job.model.parameters()).device
        if ranks.leads:
            self.plain = copy.deepcopy(job.model.cpu())
        job.model.to(self._device)
        self._whole = _WholeLoss(job)
        mesh = init_device_mesh(self._device.type, (ranks.world,))
        for layer in layers(job.model):
            fully_shard(layer, mesh=mesh)
        fully_shard(self._whole, mesh=mesh)
        gather: Any = _Gather(self.moved)
        scatter: Any = _Scatter(self.moved)
        for module in self._whole.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
                module.set_custom_all_gather(gather)
                module.set_custom_reduce_scatter(scatter)

    def loss(self, batch: Any) -> Loss:
        return Loss(*self._whole(batch))

    def norm(self, gradients: Sequence[Tensor]) -> float:
        """‖g‖² = Σ over ranks of ‖own part of g‖²."""
        square = super().norm(gradients) ** 2
        return float(self.ranks.sums({"square": square})["square"] ** 0.5)

    @contextlib.contextmanager
    def measured(self, mean: MovingMean | None) -> Iterator[nn.Module]:
        tensors = own_tensors(self.job.model) if mean is None else mean.tensors
        plain = own_tensors(self.plain) if self.ranks.leads else {}
        with torch.no_grad():
            for name, tensor in tensors.items():
                full = whole(tensor)
                if self.ranks.leads:
                    plain[name].copy_(full)
        if self.ranks.leads:
            self.plain.to(self._device)
        try:
            yield self.plain
        finally:
            if self.ranks.leads:
                self.plain.cpu()

    def why(
        self, turns: Sequence[Any], loss: float, forward: Callable[[Any], Loss], rate: float
    ) -> str:
        return f"numbers are not finite (learning rate {rate:.2g}); one device can say where"


def layers(model: nn.Module) -> list[nn.Module]:
    """The repeated parts of a model, each called once in a pass, with weights of their own."""
    holders: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            holders[id(parameter)] = holders.get(id(parameter), 0) + 1
    return [
        layer
        for stack in stacks(model)
        for layer in stack
        if not isinstance(layer, nn.ModuleList)
        and all(holders[id(parameter)] == 1 for parameter in layer.parameters())
    ]


def stacks(model: nn.Module) -> list[nn.ModuleList]:
    """The lists in which layers stand, one on another."""
    lists = [m for name, m in model.named_modules() if name.split(".")[-1] == "layers"]
    return [m for m in lists if isinstance(m, nn.ModuleList)]


class _Gather:
    """FSDP's all-gather, counting the bytes that it makes."""

    def __init__(self, moved: dict[str, int]) -> None:
        self.moved = moved

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False
    ) -> Any:
        self.moved["all_gathered"] += output_tensor.nbytes
        gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # the newer name
        return gather(output_tensor, input_tensor, group=group, async_op=async_op)


class _Scatter(_Gather):
    """FSDP's reduce-scatter, counting the bytes that it takes."""

    def __call__(  # type: ignore[override]
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        self.moved["reduce_scattered"] += input_tensor.nbytes
        scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
        return scatter(output_tensor, input_tensor, op=op, group=group, async_op=async_op)


KINDS: dict[str, type[Parallel]] = {kind.name: kind for kind in (Parallel, Replicas, Shards)}


def parallel_of(
    name: Literal["auto", "none", "ddp", "fsdp"], ranks: Ranks, job: Job
) -> tuple[Parallel, list[str]]:
    """How these ranks train the model together, and what to say of it.

    "auto" keeps replicas where weights, gradients and moments leave room for activations, and
    shards them elsewhere.
    """
    if type(ranks) is Ranks:
        waiting = [f'train.parallel = "{name}" waits for torchrun: this is one process']
        return Parallel(ranks, job), waiting if name in ("ddp", "fsdp") else []
    needed = BYTES * sum(p.numel() for p in job.model.parameters())
    chosen = ("ddp" if needed <= SHARE * _memory() else "fsdp") if name == "auto" else name
    said = f"{ranks.world} ranks, {chosen}: weights, gradients and moments take"
    found = KINDS[chosen](ranks, job)
    return found, [f"{said} {needed / 2**20 / (ranks.world if chosen == 'fsdp' else 1):,.1f} MiB"]


def _memory() -> float:
    """Bytes of this rank's GPU; on processors, where replicas are simplest, without a bound."""
    if not torch.cuda.is_available():
        return float("inf")
    return float(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
