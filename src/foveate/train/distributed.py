"""Training on several processes: ranks, timeouts, DDP and FSDP."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import re
import signal
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.utils import get_total_norm

from foveate.config import ConfigError
from foveate.tasks.base import Loss
from foveate.train.config import TrainConfig
from foveate.train.optim import MovingMean
from foveate.train.stored import TrainError, is_shard, own_tensors, whole

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket, Store

T = TypeVar("T")
Signal = signal.Signals | None
STOPS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """While entered, the first SIGINT or SIGTERM is kept in ``received``; the second raises.

    Only the main thread can catch signals; in another one this catches none.
    """

    def __init__(self) -> None:
        self.received: Signal = None
        self._at_once = False
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in STOPS:
                self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        again = self.received is not None
        self.received = signal.Signals(number)
        if again or self._at_once:
            raise KeyboardInterrupt

    def unless(self, call: Callable[[], T]) -> T | None:
        """Return what a call returns, or None if a signal, the first too, breaks it off at once."""
        self._at_once = True
        try:
            return call()
        except KeyboardInterrupt:
            if self.received is None:
                raise
            return None
        finally:
            self._at_once = False


LossOf = Callable[[nn.Module, object], Loss]  # of a model and a batch


class Ranks:
    """One process alone, which is rank 0."""

    rank, world = 0, 1

    @property
    def is_rank_zero(self) -> bool:
        """True on rank 0, which writes the files and prints."""
        return self.rank == 0

    def sums(self, values: dict[str, float]) -> dict[str, float]:
        """Σ over the ranks of each value; all ranks have the same names."""
        return values

    def agree(self, now: float, received: Signal) -> tuple[float, Signal]:
        """The clock of rank 0, and the signal that any rank has received: the same for all."""
        return now, received

    def on_rank_zero(self, what: str, do: Callable[[], T]) -> T:
        """Rank 0 calls ``do``, without a time limit, and broadcasts its result, a JSON value.

        Where it raises, the other ranks end too.
        """
        return do()

    def doing(self, what: str) -> None:
        """Name what begins now, for the message about lost ranks."""

    def same(self, what: str, value: str) -> None:
        """Raise `TrainError` where a rank has another value than rank 0."""


class RankGroup(Ranks):
    """The process group that `torchrun` has started; messages pass through PyTorch's store.

    What rank 0 does alone (reading data, validating, saving) has no time limit: the others do
    not wait in a collective, which would time out, but poll the store.
    """

    def __init__(self, hang_minutes: float) -> None:
        """Join the others, by the environment variables that torchrun sets."""
        seconds = 60 * hang_minutes
        network: Any = dist  # PyTorch does not declare `PrefixStore` public
        store, self.rank, self.world = next(rendezvous("env://"))
        session = _session(store, self.rank, self.world, seconds)
        self._store = network.PrefixStore(f"foveate/{session}", store)
        self._broadcasts, self._doing = 0, "starting"
        gpu = torch.cuda.is_available()
        if gpu:
            local, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
            if local >= count:
                raise TrainError(
                    f"rank {local} of this host has no GPU of its own: the host has {count}; start "
                    "fewer ranks a host (torchrun --nproc-per-node), or hide them "
                    "(CUDA_VISIBLE_DEVICES=)"
                )
            torch.cuda.set_device(local)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if gpu else "gloo",
            store=network.PrefixStore("collectives", self._store),
            rank=self.rank,
            world_size=self.world,
            timeout=timedelta(seconds=seconds),
        )

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()

    def sums(self, values: dict[str, float]) -> dict[str, float]:
        total = torch.tensor(list(values.values()), dtype=torch.float64)
        dist.all_reduce(total)
        return dict(zip(values, total.tolist(), strict=True))

    def agree(self, now: float, received: Signal) -> tuple[float, Signal]:
        own = {"now": now if self.is_rank_zero else 0.0}
        own |= {stop.name: float(received is stop) for stop in STOPS}
        agreed = self.sums(own)
        return agreed["now"], next((stop for stop in STOPS if agreed[stop.name]), None)

    def doing(self, what: str) -> None:
        self._doing = what

    def on_rank_zero(self, what: str, do: Callable[[], T]) -> T:
        self._broadcasts += 1
        key, pause = f"broadcast/{self._broadcasts}", 0.005
        if self.is_rank_zero:
            try:
                result = do()
            except BaseException:
                self._store.set(key, json.dumps({"failed": True}))
                raise
            self._store.set(key, json.dumps({"results": [result]}))
            return result
        before, self._doing = self._doing, f"{self._doing}, waiting for rank 0: {what}"
        while not self._store.check([key]):
            time.sleep(pause)
            pause = min(0.5, 1.5 * pause)
        self._doing = before
        message = json.loads(self._store.get(key))
        if "failed" in message:
            raise SystemExit(2)  # rank 0 has printed why
        [result] = message["results"]
        return result

    def same(self, what: str, value: str) -> None:
        if self.on_rank_zero(what, lambda: value) != value:
            raise TrainError(
                f"rank {self.rank} on {socket.gethostname()} differs from rank 0 in {what}: all "
                "hosts must read the same files with the same versions"
            )

    @contextlib.contextmanager
    def lost(self) -> Iterator[None]:
        """Within, an error of the network becomes a `TrainError` that names the rank."""
        try:
            yield
        except RuntimeError as error:
            known = isinstance(error, dist.DistError) or re.search("gloo|pair closure", str(error))
            if not known:
                raise
            reason = str(error).strip().splitlines()[0]
            raise TrainError(
                f"rank {self.rank} lost the others in {self._doing} ({reason}): one hangs for "
                "longer than train.hang_minutes, has ended, or cannot be reached; the same command "
                "resumes the run from its last checkpoint, as does torchrun --max-restarts"
            ) from error


def _session(store: Store, rank: int, world: int, seconds: float) -> str:
    """A name for this start of the ranks, once all are there.

    After a restart the store may still hold the keys of earlier processes. So rank 0 draws a name,
    every other rank writes a token of its own under it, and goes on when rank 0 has read it.
    """
    own, until = uuid.uuid4().hex, time.monotonic() + seconds
    if rank == 0:
        store.set("session", own)
        signed = [f"{own}/{other}" for other in range(1, world)]
        _until(lambda: not signed or store.check(signed), until, "other ranks have not connected")
        store.set(f"{own}/all", " ".join(store.get(key).decode() for key in signed))
        return own

    def joined() -> bool:
        session = store.get("session").decode() if store.check(["session"]) else "none"
        store.set(f"{session}/{rank}", own)
        key = f"{session}/all"
        return bool(store.check([key])) and own in store.get(key).decode().split()

    _until(joined, until, "rank 0 has not connected")
    return str(store.get("session").decode())


def _until(holds: Callable[[], bool], end: float, what: str) -> None:
    while not holds():
        if time.monotonic() > end:
            raise TrainError(f"{what} within train.hang_minutes: has their host started?")
        time.sleep(0.02)


@contextlib.contextmanager
def ranks_of(config: TrainConfig) -> Iterator[Ranks]:
    """The ranks that ``torchrun`` has started, or this process alone.

    Raises ``ConfigError`` where there are several and ``train.parallel`` is "none".
    """
    started = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
    world = int(os.environ["WORLD_SIZE"]) if started else 1
    if config.parallel == "none" and world > 1:
        raise ConfigError(
            f'train.parallel = "none", but torchrun has started {world} ranks; write "auto", or '
            "start one",
            ("train", "parallel"),
        )
    if not started or (world == 1 and config.parallel in ("auto", "none")):
        yield Ranks()
        return
    group = RankGroup(config.hang_minutes)
    with group.lost():
        yield group
    group.close()  # not after an error: it would wait for lost ranks


# One model on several devices: replicas or shards of the weights, and the sum of the gradients.
#
# The gradient of a step is that of one process with all batches: Σ over ranks and batches of
# ∇total, over Σ count. So nothing here divides by the number of ranks.

BYTES = 16  # of a parameter in training: weight, gradient and two moments in fp32
SHARE = 0.6  # of a device's memory that these may take; activations need the rest


class Parallel:
    """One process: all batches, weights and gradients are its own."""

    name = "none"

    def __init__(self, ranks: Ranks, model: nn.Module, loss: LossOf) -> None:
        self.ranks, self.model, self._loss = ranks, model, loss
        self.plain = model  # the model with whole weights, on rank 0
        self.described: list[str] = []  # lines for the start of a training

    def loss(self, batch: object) -> Loss:
        """The loss of a batch, with its graph."""
        return self._loss(self.model, batch)

    def gathering(self, last: bool) -> contextlib.AbstractContextManager[object]:
        """Around forward and backward of a batch; the last of a step brings gradients together."""
        return contextlib.nullcontext()

    def gradients(self) -> list[Tensor]:
        """Return this rank's part of the gradients."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        return [g.to_local() if is_shard(g) else g for g in gradients]

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """‖g‖ of the gradients of all weights, wherever they are; on their device."""
        return get_total_norm(gradients, foreach=True)

    @contextlib.contextmanager
    def measured(self, mean: MovingMean | None) -> Iterator[nn.Module]:
        """The whole model as it is measured, on rank 0: with the moving mean, where there is one.

        All ranks enter.
        """
        with contextlib.nullcontext() if mean is None else mean.applied():
            yield self.plain

    def why(self, loss: float, rate: float) -> str:
        """Why numbers are not finite, where this rank with its summed loss cannot find out."""
        return ""


class _LossModule(nn.Module):
    """From batch to loss as one module, because PyTorch wraps the forward of a module."""

    def __init__(self, model: nn.Module, loss: LossOf) -> None:
        super().__init__()
        self.model, self._loss = model, loss

    def forward(self, batch: object) -> tuple[Tensor, int, dict[str, Tensor]]:
        loss = self._loss(self.model, batch)
        return loss.total, loss.count, loss.logged


class Replicas(Parallel):
    """Every rank holds the model and steps alike; gradients are summed while they are formed.

    Bytes a step: one all-reduce of the gradients, 4 a parameter, and of which of them were used.
    """

    name = "ddp"

    def __init__(self, ranks: Ranks, model: nn.Module, loss: LossOf) -> None:
        super().__init__(ranks, model, loss)
        module = _LossModule(model, loss)
        # one weight that nothing uses: DDP warns where every weight is used
        module.unused = nn.Parameter(next(model.parameters()).new_zeros(1))
        with warnings.catch_warnings():  # newer PyTorch has another name for broadcast_buffers
            warnings.simplefilter("ignore", FutureWarning)
            self._replica = nn.parallel.DistributedDataParallel(
                module,
                broadcast_buffers=False,  # those of rank 0 are measured and saved
                find_unused_parameters=True,  # a batch need not use all of a model
                gradient_as_bucket_view=True,
            )
        self._replica.register_comm_hook(None, lambda _, bucket: self._sum(bucket))

    def loss(self, batch: object) -> Loss:
        return Loss(*self._replica(batch))

    def gathering(self, last: bool) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext() if last else self._replica.no_sync()

    def _sum(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """Gradients ← their sums over ranks, where DDP by itself would take the mean."""
        buffer = bucket.buffer()
        work = dist.all_reduce(buffer, async_op=True)
        assert work is not None  # it is asynchronous
        return work.get_future().then(lambda done: done.value()[0])

    def why(self, loss: float, rate: float) -> str:
        finite = "the loss of this rank is finite, but the sum over all ranks is not"
        return finite if math.isfinite(loss) else ""


class Shards(Parallel):
    """Every rank holds a part of each weight, its gradient and its moments.

    A layer's weights are gathered when it comes, forward and backward, and dropped after it; its
    gradients are summed and scattered. Bytes a batch: two all-gathers and one reduce-scatter of
    the parameters, at 4 each. Rank 0 keeps a plain copy, on the processor until it is measured.
    """

    name = "fsdp"

    def __init__(self, ranks: Ranks, model: nn.Module, loss: LossOf) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        super().__init__(ranks, model, loss)
        self._device = next(model.parameters()).device
        if ranks.is_rank_zero:
            self.plain = copy.deepcopy(model.cpu())
        model.to(self._device)
        self._whole = _LossModule(model, loss)
        mesh = init_device_mesh(self._device.type, (ranks.world,))
        for layer in layers(model):
            fully_shard(layer, mesh=mesh)
        fully_shard(self._whole, mesh=mesh)
        for module in self._whole.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)

    def loss(self, batch: object) -> Loss:
        return Loss(*self._whole(batch))

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """‖g‖² = Σ over ranks of ‖own part of g‖²."""
        square = super().norm(gradients).double().square()
        dist.all_reduce(square)
        return square.sqrt()

    @contextlib.contextmanager
    def measured(self, mean: MovingMean | None) -> Iterator[nn.Module]:
        tensors = own_tensors(self.model) if mean is None else mean.tensors
        plain = own_tensors(self.plain) if self.ranks.is_rank_zero else {}
        with torch.no_grad():
            for name, tensor in tensors.items():
                full = whole(tensor)
                if self.ranks.is_rank_zero:
                    plain[name].copy_(full)
        if self.ranks.is_rank_zero:
            self.plain.to(self._device)
        try:
            yield self.plain
        finally:
            if self.ranks.is_rank_zero:
                self.plain.cpu()

    def why(self, loss: float, rate: float) -> str:
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


def parallel_of(
    name: Literal["auto", "none", "ddp", "fsdp"], ranks: Ranks, model: nn.Module, loss: LossOf
) -> Parallel:
    """Return how these ranks train the model together.

    "auto" keeps replicas where weights, gradients and moments leave room for activations, and
    shards them elsewhere.
    """
    if type(ranks) is Ranks:
        parallel = Parallel(ranks, model, loss)
        if name in ("ddp", "fsdp"):
            needs = f'train.parallel = "{name}" needs torchrun: this is a single process'
            parallel.described.append(needs)
        return parallel
    needed = BYTES * sum(p.numel() for p in model.parameters())
    memory = float("inf")  # on processors, where replicas are simplest
    if torch.cuda.is_available():
        memory = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    sharded = name == "fsdp" or (name == "auto" and needed > SHARE * memory)
    parallel = (Shards if sharded else Replicas)(ranks, model, loss)
    size = needed / 2**20 / (ranks.world if sharded else 1)
    parallel.described.append(
        f"{ranks.world} ranks, {parallel.name}: weights, gradients and moments take {size:,.1f} MiB"
    )
    return parallel
