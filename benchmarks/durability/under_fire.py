"""A server under fire: throughput, loads, bad clients, weights that change, its end.

    python benchmarks/durability under_fire RUN SENTENCES [--seconds 600] [--ends 5] [--examples 50]
                                  [--only PART] [--requests 100000]

RUN translates en → fr; SENTENCES is a file of English lines. ``foveate serve RUN`` runs as a
process of its own on the loopback address, wrk (a package of Debian) sends the load. Writes
docs/results/under-fire.json: what was tried, how often, and what was lost. ``--examples`` are
requests that schemathesis makes from the OpenAPI document for each route. The parts ``hostile`` and
``overload`` need no wrk and take ``--source``, the src of the version that serves, and ``--name``,
what it is called in the file; another process asks /health every 50 ms meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from typing import Annotated, Any

import httpx
from typer import Option

import harness

LUA = Path(__file__).with_suffix(".lua")
LOADS = {"64 clients, 1 sentence": (64, 1), "8 clients, 50 sentences": (8, 50)}
JSON = {"content-type": "application/json"}
CLIENTS = 50  # who ask when the server is ended
Figures = dict[str, Any]


def family(process: int) -> list[int]:
    """A process and all that it, or one of these, has started."""
    result = [process]
    for each in result:
        for thread in Path(f"/proc/{each}/task").glob("*/children"):
            result += map(int, thread.read_text(encoding="utf-8").split())
    return result


def processor(*processes: int) -> float:
    """Seconds of processor time that processes have taken so far."""
    ticks = 0
    for each in processes:
        fields = Path(f"/proc/{each}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def resident(process: int) -> int:
    """Bytes of memory of a process and those below it."""
    page = os.sysconf("SC_PAGE_SIZE")
    result = family(process)
    return sum(
        int(Path(f"/proc/{each}/statm").read_text(encoding="utf-8").split()[1]) * page
        for each in result
    )


class Server:
    """``foveate serve`` as a process, by the version of foveate in the folder ``source``."""

    def __init__(self, run: Path, *arguments: str, source: Path = harness.ROOT / "src") -> None:
        options = ("--port", 0, "--as", "en:fr", "--no-studio", "--preload", "--log-level", "error")
        self.process = subprocess.Popen(
            harness.foveate("serve", run, *options, *arguments),
            env=os.environ | {"PYTHONPATH": str(source)}, stdout=subprocess.PIPE, text=True,
            encoding="utf-8",
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[1].rstrip("/")
        self.address = ("127.0.0.1", int(self.url.rpartition(":")[2]))
        self.rss: list[tuple[float, int]] = []
        threading.Thread(target=self._watch, daemon=True).start()

    def cpu(self) -> float:
        """Seconds of processor time so far, with that of its other processes."""
        return processor(*family(self.process.pid))

    def metric(self, name: str) -> float:
        text = httpx.get(f"{self.url}/metrics").text
        result = re.findall(rf"^{name}(?:{{[^}}]*}})? ([\d.e+]+)$", text, re.MULTILINE)
        return sum(map(float, result))

    def _watch(self) -> None:
        while self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.rss.append((time.monotonic(), resident(self.process.pid)))
            time.sleep(0.5)

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


@contextlib.contextmanager
def served(run: Path, *arguments: str, source: Path = harness.ROOT / "src") -> Iterator[Server]:
    server = Server(run, *arguments, source=source)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end()


def wrk(
    server: Server, sentences: Path, seconds: float, clients: int, pause: float = 0, many: int = 1
) -> Figures:
    """A load of wrk; ``pause`` in ms between the requests of a client."""
    output = {"SENTENCES": str(sentences), "PAUSE": str(pause), "LIST": str(many)}
    command = ["wrk", "-t1", f"-c{clients}", f"-d{max(1, round(seconds))}s", "--timeout", "60s"]
    done = subprocess.run(
        [*command, "-s", str(LUA), server.url],
        env=os.environ | output, capture_output=True, text=True, check=True,
        encoding="utf-8",
    )  # fmt: skip
    return dict(json.loads(done.stdout.partition("RESULT ")[2]))


def thirds(sizes: Sequence[int]) -> Figures:
    """Memory (in bytes, at many moments) in the first third of the time and in the last."""
    third = max(1, len(sizes) // 3)
    first, last = (sum(part) / third / 2**20 for part in (sizes[:third], sizes[-third:]))
    return {
        "memory_mib_first_third": round(first, 1),
        "memory_mib_last_third": round(last, 1),
        "memory_growth": round(last / first - 1, 4),
    }


# ------------------------------------------------------------------------------ throughput


def throughput(run: Path, sentences: Path, seconds: float) -> Figures:
    """Offline and served in turn, A B A B: sentences a second of wall and of processor time."""
    from foveate.run import load

    lines = sentences.read_text("utf-8").splitlines()
    result: dict[str, list[tuple[float, ...]]] = {name: [] for name in ("offline", *LOADS)}
    translate = load(run).translate
    with served(run) as server:
        translate(lines[:50])

        def own() -> float:
            return processor(*family(os.getpid())) - server.cpu()

        for _ in range(2):
            start, before, sentences_done = time.perf_counter(), own(), 0
            while time.perf_counter() - start < seconds:
                sentences_done += len(translate(lines))
            spent = time.perf_counter() - start, own() - before
            result["offline"].append((sentences_done / spent[0], sentences_done / spent[1]))
            for name, (clients, many) in LOADS.items():
                items = server.metric("foveate_batch_items_sum")
                began = time.perf_counter(), server.cpu()
                wrk(server, sentences, seconds, clients, many=many)
                ended = time.perf_counter(), server.cpu()
                done = server.metric("foveate_batch_items_sum") - items
                wall, cpu = (b - a for a, b in zip(began, ended, strict=True))
                result[name].append((done / wall, done / cpu))
    rates: Figures = {}
    for name, rows in result.items():
        wall, cpu = zip(*rows, strict=True)
        rates[name] = {
            "sentences_per_second": [round(item, 1) for item in wall],
            "sentences_per_cpu_second": [round(item, 1) for item in cpu],
        }
    best = max(item[1] for item in result["offline"])
    for name in LOADS:
        _, whole = map(max, zip(*result[name], strict=True))
        rates[name]["loss_per_cpu_second"] = round(1 - whole / best, 3)
    return rates


# ------------------------------------------------------------------------------ engines


def engines(run: Path, sentences: Path, seconds: float, requests: int) -> Figures:
    """Each engine behind the same server: times and rates by clients, memory as requests pass."""
    result: Figures = {}
    for engine in ("packed", "torch"):
        with served(run, "--engine", engine) as server:
            begins = resident(server.process.pid)
            wrk(server, sentences, 2, 16)
            figures: Figures = {"memory_mib_at_start": round(begins / 2**20, 1)}
            for clients in (1, 16, 64):
                answers = wrk(server, sentences, seconds, clients)
                kept = {name: answers[name] for name in ("p50_ms", "p99_ms", "answered", "other")}
                kept["per_second"] = round(answers["answered"] / answers["seconds"], 1)
                figures[f"{clients} clients"] = kept
            while (done := server.metric("foveate_requests_total")) < requests:
                wrk(server, sentences, min(60, 1 + (requests - done) / kept["per_second"]), 64)
            figures["requests"] = int(done)
            figures["memory_mib_at_end"] = round(resident(server.process.pid) / 2**20, 1)
            figures["exit_code"] = server.end()
        result[engine] = figures
        print(engine, json.dumps(figures), flush=True)
    return result


# ------------------------------------------------------------------------------ load


def load_levels(run: Path, sentences: Path, seconds: float) -> Figures:
    """Capacity, then half of it, then twice of it: times, answers, memory."""
    queue = "6000"  # characters: about a hundred sentences, so that twice the capacity overflows
    with served(run, "--queue", queue) as server:
        wrk(server, sentences, min(10, seconds), 32)  # warm-up
        began, done = time.perf_counter(), server.metric("foveate_batch_items_sum")
        full = wrk(server, sentences, min(30, seconds), 64)
        wall = time.perf_counter() - began
        rate = (server.metric("foveate_batch_items_sum") - done) / wall
        half = wrk(server, sentences, min(120, seconds), 32, pause=1000 * 32 / (rate / 2))
        clients = 400
        before = server.metric("foveate_requests_total"), time.monotonic()
        twice = wrk(server, sentences, seconds, clients, pause=1000 * clients / (2 * rate))
        after = server.metric("foveate_requests_total"), time.monotonic()
        code = server.end()
        rss = [size for moment, size in server.rss if moment > before[1]]
    return {
        "queue_characters": int(queue),
        "capacity_per_second": round(rate, 1),
        "at_capacity": full,
        "at_half": half,
        "at_twice": twice,
        "at_twice_offered_per_second": round((after[0] - before[0]) / (after[1] - before[1]), 1),
        **thirds(rss),
        "exit_code": code,
    }


# ------------------------------------------------------------------------------ bad clients


def bad_clients(run: Path, sentences: Path) -> Figures:
    """Idle, slow, oversized and leaving clients, while good ones are answered."""
    lines = sentences.read_text("utf-8").splitlines()[:40]
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n"
    part = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{"
    with served(run) as server:
        idle = [socket.create_connection(server.address) for _ in range(1000)]
        slow = [socket.create_connection(server.address) for _ in range(200)]
        for number, item in enumerate(slow):
            item.sendall(part if number % 2 else b"GET /health HT")
        large = []
        for _ in range(50):
            with socket.create_connection(server.address, timeout=20) as item:
                item.sendall(head)
                large.append(item.recv(12)[9:12].decode())
        for _ in range(100):  # ask and leave at once
            body = json.dumps(ask(lines[0])).encode()
            with socket.create_connection(server.address) as item:
                item.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: ")
                item.sendall(b"%d\r\n\r\n%s" % (len(body), body))
        times, codes = [], Counter[int]()
        for line in lines:
            began = time.perf_counter()
            codes[
                httpx.post(f"{server.url}/translate", json=ask(line), timeout=60).status_code
            ] += 1
            times.append(time.perf_counter() - began)
        closed, deadline = 0, time.monotonic() + 40
        for item in [*idle, *slow]:
            item.settimeout(max(0.01, deadline - time.monotonic()))
            with contextlib.suppress(OSError):
                closed += item.recv(100)[9:12] == b"408"
            item.close()
        return {
            "idle_connections": len(idle),
            "slow_connections": len(slow),
            "closed_with_408": closed,
            "oversized": dict(Counter(large)),
            "left_at_once": 100,
            "good_requests": {str(code): count for code, count in codes.items()},
            "good_p50_ms": round(1000 * sorted(times)[len(times) // 2], 1),
            "good_max_ms": round(1000 * max(times), 1),
            "exit_code": server.end(),
        }


def ask(text: str) -> dict[str, Any]:
    return {"q": text, "source": "en", "target": "fr"}


# ------------------------------------------------------------------------------ its end


def ends(run: Path, sentences: Path, times: int) -> Figures:
    """SIGTERM while clients ask all the time: who was taken in is answered."""
    lines = sentences.read_text("utf-8").splitlines()
    outcome, codes = Counter[str](), []
    for number in range(times):
        with served(run) as server:

            def client(seed: int, address: tuple[str, int] = server.address) -> None:
                for line in itertools.cycle(lines[seed::CLIENTS]):
                    connection = HTTPConnection(*address, timeout=60)
                    try:
                        connection.connect()
                    except ConnectionRefusedError:
                        outcome["never taken in"] += 1
                        return
                    try:
                        connection.request("POST", "/translate", json.dumps(ask(line)), JSON)
                        answer = connection.getresponse()
                        outcome[str(answer.status) if json.load(answer) else "empty"] += 1
                    except (OSError, HTTPException) as error:
                        outcome[f"lost: {type(error).__name__}"] += 1
                        return
                    finally:
                        connection.close()

            with ThreadPoolExecutor(CLIENTS) as threads:
                requested = [threads.submit(client, seed) for seed in range(CLIENTS)]
                time.sleep(2 + 0.3 * number)
                codes.append(server.end())
                for item in requested:
                    item.result()
    return {"times": times, "exit_codes": codes, "requests": dict(outcome)}


def reloads(run: Path, sentences: Path, times: int = 60) -> Figures:
    """Weights that are chosen anew again and again: each time an answer, and the memory."""
    lines, rss, codes = sentences.read_text("utf-8").splitlines(), [], Counter[int]()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(run, Path(folder, run.name)))
        with served(copy) as server:
            for _ in range(times):
                os.utime(copy / "best.json")
                body = ask(lines[0]) | {"q": lines[:100]}
                answer = httpx.post(f"{server.url}/translate", json=body, timeout=60)
                codes[answer.status_code] += 1
                rss.append(resident(server.process.pid))
            loads = server.metric("foveate_loads")
    return {
        "times": times,
        "loads": loads,
        "answers": {str(code): count for code, count in codes.items()},
        **thirds(rss),
    }


# ------------------------------------------------------------------------------ hostile, overload

WATCH = """
import http.client, json, sys, time
times, failed, address = [], 0, (sys.argv[1], int(sys.argv[2]))
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    began = time.monotonic()
    connection = http.client.HTTPConnection(*address, timeout=300)
    try:
        connection.request("GET", "/health")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        failed += 1
    connection.close()
    times.append(time.monotonic() - began)
    time.sleep(max(0, 0.05 - times[-1]))
print(json.dumps([times, failed]))
"""


@contextlib.contextmanager
def health(server: Server, seconds: float) -> Iterator[Figures]:
    """How long /health takes for so many seconds, asked every 50 ms by another process."""
    figures: Figures = {}
    command = [sys.executable, "-c", WATCH, *map(str, server.address), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as watch:
        assert watch.stdout is not None
        watch.stdout.readline()
        yield figures
        times, failed = json.loads(watch.stdout.readline())
    figures["load_average"] = round(os.getloadavg()[0], 1)
    figures |= {"health_asked": len(times), "health_failed": failed}
    figures["health_p50_ms"] = round(1000 * sorted(times)[len(times) // 2], 1)
    figures["health_max_ms"] = round(1000 * max(times), 1)


def hostile_requests() -> dict[str, list[tuple[str, Figures]]]:
    """Requests that once stopped others, by their names: the path, and what httpx sends."""
    variants = [f"{n:03} {'x' * 14}" for n in range(100)]
    text = "a dog runs and the cat sleeps. "
    small = ask(text * 30) | {"glossary": dict.fromkeys(text.rstrip(". ").split(), variants)}
    many = ask("the dog runs. " * 20) | {"glossary": {"dog": list("ab" * 200_000)}}
    terms = ask("the dog runs ") | {"glossary": {f"the dog {n}": "x" for n in range(5000)}}
    catalogue = "".join(
        f'msgctxt "{n}"\nmsgid "{chr(97 + n % 26)}"\nmsgstr ""\n\n' for n in range(40_000)
    )
    fields = {"source": "en", "target": "fr"}
    upload = {"data": fields, "files": {"file": ("a.po", catalogue.encode())}}
    return {
        "two requests of 13 kB, 7 terms of 100 variants": [("/translate", {"json": small})] * 2,
        "400,000 variants": [("/translate", {"json": many})],
        "5,000 terms": [("/translate", {"json": terms})],
        "40,000 PO messages": [("/translate_file", upload)],
    }


def hostile(run: Path, source: Path) -> Figures:
    """Each of them while a good client asks: times of /health, of the good one, and of the end."""
    result: Figures = {}
    for name, requests in hostile_requests().items():
        with served(run, source=source) as server, ThreadPoolExecutor(3) as threads:
            httpx.post(f"{server.url}/translate", json=ask("the dog runs"), timeout=60)
            states, good = [], []
            with health(server, 15) as figures:
                sent = [
                    threads.submit(httpx.post, f"{server.url}{path}", timeout=600, **body)
                    for path, body in requests
                ]
                end = time.monotonic() + 15
                while time.monotonic() < end:
                    began = time.monotonic()
                    httpx.post(f"{server.url}/translate", json=ask("a dog runs"), timeout=600)
                    good.append(time.monotonic() - began)
                    time.sleep(0.2)
            began = time.monotonic()
            figures["exit_code"] = server.end()
            figures["end_seconds"] = round(time.monotonic() - began, 1)
            for each in sent:
                with contextlib.suppress(httpx.HTTPError):
                    states.append(each.result().status_code)
            figures |= {"states": states, "good_max_ms": round(1000 * max(good), 1)}
        result[name] = figures
        print(name, json.dumps(figures), flush=True)
    return result


async def offered(server: Server, lines: Sequence[str], rate: float, seconds: float) -> Figures:
    """So many requests a second of 5 to 15 sentences, at moments of a Poisson process.

    The client is bare sockets: one that computes much would measure its own waits.
    """
    random, states, silent = Random(1), Counter[str](), 0
    times, refusals = list[float](), [0.0]
    loop = asyncio.get_running_loop()

    async def one(body: bytes) -> None:
        nonlocal silent
        began = loop.time()
        head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(head.encode() + body)
            answer = await reader.read()
            writer.close()
        except OSError as error:
            states[type(error).__name__] += 1
            return
        states[answer[9:12].decode()] += 1
        if answer[9:12] == b"200":
            times.append(loop.time() - began)
        else:
            refusals.append(loop.time() - began)
            silent += b"retry-after:" not in answer.lower()

    end, due, tasks = loop.time() + seconds, loop.time(), set[asyncio.Task[None]]()
    while due < end:
        due += random.expovariate(rate)
        await asyncio.sleep(max(0, due - loop.time()))
        texts = [random.choice(lines) for _ in range(random.randint(5, 15))]
        tasks.add(asyncio.create_task(one(json.dumps(ask("") | {"q": texts}).encode())))
    await asyncio.gather(*tasks)
    times.sort()
    return {
        "offered_per_second": round(rate, 1),
        "states": dict(sorted(states.items())),
        "refused_without_retry_after": silent,
        "p50_s": round(times[len(times) // 2], 2),
        "max_s": round(times[-1], 2),
        "refused_max_s": round(max(refusals), 2),
    }


def overload(run: Path, sentences: Path, source: Path, seconds: float) -> Figures:
    """Twice and four times what it can do, with the bound of waiting that is the default."""
    lines = sentences.read_text("utf-8").splitlines()
    result: Figures = {}
    with served(run, source=source) as server:

        def load(rate: float, seconds: float) -> Figures:
            return asyncio.run(offered(server, lines, rate, seconds))

        load(5, 3)
        offer, rate = 40.0, 40.0
        while rate > 0.8 * offer:  # until it cannot answer what is offered
            offer, began = 2 * offer, time.monotonic()
            answered = load(offer, 10)["states"]["200"]
            rate = answered / (time.monotonic() - began)
        result["capacity_requests_per_second"] = round(rate, 1)
        for times in (2, 4):
            with health(server, seconds) as figures:
                figures |= load(times * rate, seconds)
            result[f"{times} times"] = figures
            print(times, json.dumps(figures), flush=True)
        result["exit_code"] = server.end()
    return result


def commit(source: Path) -> str:
    """The commit of the version in a folder."""
    command = ["git", "-C", str(source), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout.strip()


def generated(run: Path, examples: int) -> Figures:
    """Requests made from the OpenAPI document."""
    program = shutil.which("schemathesis", path=Path(sys.executable).parent)
    if program is None or not examples:
        return {"examples_per_route": 0}
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,"
    checks += "response_schema_conformance"
    with served(run) as server, tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [program, "run", f"{server.url}/openapi.json", "--checks", checks, "--max-examples",
             str(examples), "--seed", "1", "--request-timeout", "60"],
            capture_output=True, text=True, cwd=folder,  # it keeps a cache where it runs,
            encoding="utf-8",
        )  # fmt: skip
    summary = [line.strip() for line in done.stdout.splitlines() if "generated" in line]
    return {"examples_per_route": examples, "exit_code": done.returncode, "said": summary[-1:]}


def same(run: Path, sentences: Path, count: int = 200) -> Figures:
    """Answers to clients who ask all at once, beside those to one after another, and the run's.

    The run's may be others where a number has to come out as one: "2 girls" → "2 deux filles".
    """
    from foveate.run import load

    lines, own = sentences.read_text("utf-8").splitlines()[:count], load(run)
    with served(run) as server, ThreadPoolExecutor(32) as threads:

        def answer(line: str) -> str:
            answer = httpx.post(f"{server.url}/translate", json=ask(line), timeout=60)
            return str(answer.json()["translatedText"])

        ways = {
            "alone": map(answer, lines),
            "run": (str(own.translate([item])[0]) for item in lines),
        }
        neighbours = list(threads.map(answer, lines))
        result = {
            f"different_from_{method}": sum(
                item != other for item, other in zip(neighbours, answers, strict=True)
            )
            for method, answers in ways.items()
        }
    return {"sentences": len(lines), **result}


def main(
    run: Path,
    sentences: Path,
    seconds: Annotated[float, Option(help="of each load")] = 60,
    times: Annotated[int, Option("--ends", help="how often it is ended while busy")] = 5,
    examples: Annotated[int, Option(help="for each route; 0: none")] = 50,
    only: Annotated[list[str] | None, Option(help="a part; the others stay in the file")] = None,
    requests: Annotated[int, Option(help="that each engine answers")] = 100_000,
    source: Annotated[Path, Option(help="of the version that serves")] = harness.ROOT / "src",
    name: Annotated[str, Option(help="of the version: before, after")] = "after",
) -> None:
    versions = ("hostile", "overload")
    if shutil.which("wrk") is None and not set(only or ["all"]) <= set(versions):
        sys.exit("wrk is needed: apt-get install wrk")
    os.environ["PYTHONPATH"] = str(harness.ROOT / "src")
    parts: dict[str, Callable[[], Figures]] = {
        "same": lambda: same(run, sentences),
        "throughput": lambda: throughput(run, sentences, min(20, seconds)),
        "engines": lambda: engines(run, sentences, min(20, seconds), requests),
        "load": lambda: load_levels(run, sentences, seconds),
        "bad_clients": lambda: bad_clients(run, sentences),
        "reloads": lambda: reloads(run, sentences),
        "ends": lambda: ends(run, sentences, times),
        "generated": lambda: generated(run, examples),
        "hostile": lambda: hostile(run, source),
        "overload": lambda: overload(run, sentences, source, seconds),
    }
    result = harness.previous("under-fire")
    options = f"--seconds {seconds:g} --ends {times} --examples {examples}"
    for part in only or parts:
        command = f"python benchmarks/durability under_fire RUN SENTENCES {options} --only {part}"
        figures = {"command": command, "machine": harness.describe()}
        if part in versions:
            figures["machine"]["commit"] = commit(source)
            result.setdefault(part, {})[name] = figures | parts[part]()
        else:
            result[part] = figures | parts[part]()
        print(part, json.dumps(result[part], indent=2), flush=True)
        harness.write("under-fire", result)
