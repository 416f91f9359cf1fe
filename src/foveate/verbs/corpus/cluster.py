"""The parts of a folder translated by Ray Data, on the machines of a cluster.

Each worker is a Ray actor that loads the run once. One that dies is started again, and the parts
that it had in hand are dealt out anew: that is what Ray Data does unless told otherwise. A part's
answer reaches this process once, in its turn.

Does not live here: what a worker does with a part (`hands.translator`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

from foveate import __version__
from foveate.config import ConfigError
from foveate.data.corpus import WorkerError, cores
from foveate.errors import message_of
from foveate.export.base import need
from foveate.verbs.corpus.hands import Answer, Hands, Order, opened, translator

STORE = 128 * 2**20  # bytes for answers on their way, in a cluster that is started here
SECONDS = 300  # for a machine to say what it sees


def through_ray() -> Hands:
    """The hands of a cluster. Raises `ExchangeError` where Ray Data is not installed."""
    need("ray", "pyarrow", extra="ray")
    return _answers


def _answers(order: Order) -> Generator[Answer, None, None]:
    if not order.parts:
        return
    with _connected(order) as ray:
        rooms = _rooms(ray, order)
        count = min(order.processes or rooms, len(order.parts))
        each = "one thread" if order.threads == 1 else f"{order.threads} threads"
        order.say(f"{count} workers of {each} each")
        rows = [{"number": n, "part": json.dumps(p)} for n, p in enumerate(order.parts)]
        data = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            _Worker,
            fn_constructor_args=(dict(order.values),),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=count),
            num_cpus=order.threads,
        )
        seen = set[str]()
        try:
            for number, row in enumerate(data.iter_rows()):
                yield _answer(row, number)
                seen.add(row["worker"])
        except ray.exceptions.RayError as error:
            raise WorkerError(
                f"Ray gave up: {_last_line(error)}; what is done is kept, the same command goes on"
            ) from error
        if len(seen) > count:
            order.say(f"{len(seen) - count} of the workers took the place of one that was lost")


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def _answer(row: Mapping[str, Any], number: int) -> Answer:
    if row["error"]:
        raise WorkerError(f"in a worker: {row['error']}")
    if row["number"] != number:
        raise WorkerError(f"Ray gave the answer to part {row['number']} in place of {number}")
    return opened(row["answer"])


class _Worker:
    """An actor: it loads the run once, and translates a part after the other."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # several would fill the memory of a GPU
        self._work = translator(values)
        self._name = f"{socket.gethostname()}:{os.getpid()}"

    def __call__(self, batch: Any) -> Any:
        """The answer to the one row of a table, as such a table."""
        import pyarrow

        (row,) = batch.to_pylist()
        answer, error = b"", ""
        try:
            answer = self._work(*json.loads(row["part"]))["answers"].tobytes()
        except Exception as problem:  # it would be the same in another worker
            error = f"{type(problem).__name__}: {message_of(problem)}"
        found = {"number": row["number"], "error": error, "worker": self._name}
        columns = {name: pyarrow.array([value]) for name, value in found.items()}
        return pyarrow.table(columns | {"answer": pyarrow.array([answer], pyarrow.large_binary())})


# ------------------------------------------------------------------------------ the cluster


@contextlib.contextmanager
def _connected(order: Order) -> Iterator[Any]:
    """Ray, connected with the cluster of ``RAY_ADDRESS`` or one of this machine alone."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing calls home
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # the rest is in Ray's own files
    address = os.environ.get("RAY_ADDRESS", "")
    if not address:  # Ray asks nobody for a password: its ports are for this machine alone
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    import ray
    import ray.data

    if address.startswith("ray://"):
        raise ConfigError(f"RAY_ADDRESS={address}: work on a machine of the cluster, host:port")
    if address:
        order.say(f"the Ray cluster at {address}")
        here: dict[str, Any] = {"address": address}
    else:
        order.say("RAY_ADDRESS names no cluster: one of this machine alone is started")
        room = max(cores(), (order.processes or 1) * order.threads)
        here = {"address": "local", "num_cpus": room, "num_gpus": 0, "include_dashboard": False}
        here |= {"object_store_memory": STORE, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(**here, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(f"no Ray cluster at {address or 'this machine'}: {error}") from None
    try:
        _quiet(ray)
        yield ray
    finally:
        ray.shutdown()


def _quiet(ray: Any) -> None:
    """Answers in the order of the parts, and no bars beside our own."""
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)


def _rooms(ray: Any, order: Order) -> int:
    """How many workers the machines have room for, each of which has what the workers need.

    Raises ``ConfigError`` naming a machine that does not see a file, or that has another foveate.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def sees(wanted: Mapping[str, int], version: str) -> str:
        """What keeps a machine from working, or nothing; travels whole, for it runs there."""
        import foveate

        if foveate.__version__ != version:
            return f"it has foveate {foveate.__version__}, this one {version}; install the same"
        for path, size in wanted.items():
            if not os.path.isfile(path):
                return f"it does not see {path}; share the folder under the same path, as by NFS"
            if os.path.getsize(path) != size:
                return f"its {path} is another file; share the folder, do not copy it"
        return ""

    rooms, asked = 0, {}
    wanted = {path: Path(path).stat().st_size for path in order.needed}
    check = ray.remote(num_cpus=0, max_retries=0)(sees)
    for node in ray.nodes():
        room = int(node["Resources"].get("CPU", 0)) // order.threads if node["Alive"] else 0
        if room:
            rooms += room
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked[node["NodeManagerAddress"]] = check.options(scheduling_strategy=there).remote(
                wanted, __version__
            )
    for machine, answer in asked.items():
        try:
            problem = ray.get(answer, timeout=SECONDS)
        except ray.exceptions.RayError as error:
            problem = _last_line(error)
        if problem:
            raise ConfigError(f"machine {machine} of the cluster: {problem}")
    if not rooms:
        raise ConfigError(f"no machine of the cluster has {order.threads} processors for a worker")
    return rooms
