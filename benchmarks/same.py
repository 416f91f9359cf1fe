"""Whether two versions of foveate do the same: python benchmarks/same.py take RUNS OUT.json

    same.py train RUNS              train the runs that the manifest asks (minutes)
    same.py take RUNS OUT.json      run every piece of work, write a manifest (--quick: ≤ 4 minutes)
    same.py compare A.json B.json   name every difference; the exit code is 1 where there is one

A manifest holds, for each piece of work, its exit code, what it printed, and the sha256 of the
files that it wrote: weights after ten steps of every shipped config, translations by every search,
every view of every run, every HTTP route, every export, the help of every command, and the messages
of the mistakes in ``tests/mistakes.toml``. One thread, fp32, no kernels of the machine's choice.
The work is done by the command line and over HTTP alone, so it outlives any layout of the package;
``--source DIR`` names the ``src`` folder that is measured (default: this checkout's).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CONFIGS = ROOT / "configs"
PINNED = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "FOVEATE_NATIVE": "0", "COLUMNS": "100",
    "TERM": "dumb", "NO_COLOR": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONHASHSEED": "0",
}  # fmt: skip
TEXT = "A black dog runs on the beach ."
ENGLISH = "The old house is red."
SEARCHES = {
    "greedy": ["--beam-size", "1"],
    "beam": ["--beam-size", "4"],
    "nbest": ["--beam-size", "4", "--num-hypotheses", "3", "--scores"],
    "diverse": ['decode={kind="diverse_beam", groups=2, beam_size=4}'],
    "sample": ['decode={kind="sample", seed=3, top_k=5}'],
    "mbr": ['decode={kind="minimum_bayes_risk"}'],
    "int8": ["--precision", "int8"],
    "forced": ["--force", "maison"],
    "banned": ["--ban", "la"],
}
# Each run with the config that trains it, its steps, and what its views are asked.
RUNS: dict[str, tuple[str, int, list[str]]] = {
    "rnnsearch": ("translation/multi30k-en-fr-rnnsearch.toml", 40, ["--text", TEXT]),
    "joined": ("translation/multi30k-en-fr-prefix.toml", 20, ["--text", TEXT]),
    "guided": ("translation/tatoeba-en-fr-guided.toml", 20, ["--text", TEXT]),
    "cbow": ("classification/sst2-cbow.toml", 60, ["--text", TEXT]),
    "sst2": ("classification/sst2-transformer.toml", 20, ["--text", TEXT]),
    "shakespeare": ("language/tiny-shakespeare.toml", 20, ["--text", "To be or not"]),
    "masked": ("masked/sst2-masked.toml", 20, ["--text", "a good [MASK] ."]),
    "vit": ("vision/mnist-vit.toml", 20, ["--image", "0"]),
    "caption": ("captioning/flickr8k-soft.toml", 10, ["--image", "0"]),
    "patch": ("forecasting/etth1-patch.toml", 20, []),
    "cmudict": ("transduction/cmudict.toml", 40, ["--text", "hello"]),
}
QUICK = ("transformer", "rnnsearch", "shakespeare", "patch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=ROOT / "src")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("train").add_argument("runs", type=Path)
    take_ = verbs.add_parser("take")
    take_.add_argument("runs", type=Path)
    take_.add_argument("out", type=Path)
    take_.add_argument("--quick", action="store_true")
    take_.add_argument("--only", nargs="*", default=None, metavar="PART")
    both = verbs.add_parser("compare")
    both.add_argument("before", type=Path)
    both.add_argument("after", type=Path)
    verbs.add_parser("work")
    inputs = parser.parse_args()
    if inputs.verb == "compare":
        sys.exit(compare(inputs.before, inputs.after))
    if inputs.verb == "work":
        sys.exit(work())
    os.environ.update(PINNED, PYTHONPATH=str(inputs.source.resolve()))
    if inputs.verb == "train":
        return train(inputs.runs)
    take(inputs.runs.resolve(), inputs.out, inputs.quick, inputs.only)


def foveate(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "foveate", *arguments]


def train(runs: Path) -> None:
    """Every run of `RUNS`, and ``transformer`` on the embedded corpus, briefly, in fp32."""
    runs.mkdir(parents=True, exist_ok=True)
    steps = ["train.validation.every", "train.save.every", "train.max_steps"]
    for name, (config, count, _) in RUNS.items():
        if not (runs / name).exists():
            brief = [f"{key}={count}" for key in steps]
            changes = [*brief, "train.precision=fp32", "train.schedule.warmup_steps=1"]
            arguments = ["train", str(CONFIGS / config), "--run", str(runs / name), *changes]
            subprocess.run(foveate(*arguments), check=True)


# ------------------------------------------------------------------------------ taking


def take(runs: Path, out: Path, quick: bool, only: list[str] | None) -> None:
    """Do every piece of work and write the manifest."""
    with tempfile.TemporaryDirectory() as folder:
        clean = Cleaner({str(runs): "RUNS", folder: "TMP", str(ROOT): "ROOT"})
        manifest: dict[str, Any] = {}
        for part in (weights, translations, views, exports, messages, routes):
            if only is None or part.__name__ in only:
                started = time.perf_counter()
                manifest |= part(runs, Path(folder), quick, clean)
                print(f"{part.__name__}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    out.write_text(json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


class Cleaner:
    """Takes out of a text what differs between two runs of the same work: paths, times, dates."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def __call__(self, text: str) -> str:
        for path, name in self.names.items():
            text = text.replace(path, name)
        text = re.sub(
            r"\b\d+:\d\d(:\d\d)?\b|\b\d+(\.\d+)? (ms|s|minutes?|seconds?)\b", "TIME", text
        )
        text = re.sub(r'"milliseconds": ?[\d.]+', '"milliseconds":TIME', text)
        text = re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.Z+]+", "DATE", text)
        return re.sub(r"[\d,.]+ ?(tokens|target tokens|sentences|lines)/s", "RATE", text)


Part = dict[str, Any]


def digest(path: Path) -> str:
    """The sha256 of a file; of JSON and HTML without what names the time or a folder."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_of(folder: Path) -> dict[str, str]:
    """The digest of every file under a folder (or of the one file)."""
    if folder.is_file():
        return {folder.name: digest(folder)}
    return {str(p.relative_to(folder)): digest(p) for p in sorted(folder.rglob("*")) if p.is_file()}


def done(
    jobs: dict[str, tuple[list[str], str]], clean: Cleaner, folder: Path, wrote: bool = True
) -> Part:
    """Exit code, output and files of each command line, all in one process, in order."""
    listed = folder / "jobs.json"
    listed.write_text(json.dumps(jobs))
    environment = os.environ | {"SAME_JOBS": str(listed), "PYTHONPATH": os.environ["PYTHONPATH"]}
    command = [sys.executable, __file__, "work"]
    subprocess.run(command, env=environment, check=True, cwd=folder)
    results = json.loads(listed.with_suffix(".done").read_text())
    return {
        name: {
            key: clean(value) if isinstance(value, str) else value for key, value in item.items()
        }
        for name, item in results.items()
    }


def work() -> int:
    """In a process of its own: the command lines of ``SAME_JOBS``, one after the other."""
    from foveate.__main__ import main as run

    listed = Path(os.environ["SAME_JOBS"])
    results: dict[str, Any] = {}
    for name, (arguments, text) in json.loads(listed.read_text()).items():
        out, err = Stream(), Stream()
        sys.argv, code = ["foveate", *arguments], 0
        stdin = io.TextIOWrapper(io.BytesIO(text.encode("utf-8", "surrogateescape")))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            saved, sys.stdin = sys.stdin, stdin
            try:
                run()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except Exception as error:  # a traceback is what the manifest is there to show
                code = 70
                print(f"TRACEBACK {error!r}", file=err)
            finally:
                sys.stdin = saved
        results[name] = {"exit": code, "stdout": out.text(), "stderr": err.text()}
    listed.with_suffix(".done").write_text(json.dumps(results))
    return 0


class Stream(io.TextIOWrapper):
    """Standard output or error in memory: text, and the bytes below it."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def text(self) -> str:
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode("utf-8", "backslashreplace")


def weights(runs: Path, folder: Path, quick: bool, clean: Cleaner) -> Part:
    """The weights of every shipped config after ten steps (--quick: four configs, three steps)."""
    result: Part = {}
    chosen = {RUNS[name][0] for name in QUICK if name in RUNS}
    count = 3 if quick else 10
    for path in sorted(CONFIGS.rglob("*.toml")):
        name = str(path.relative_to(CONFIGS))
        if "start" in tomllib.loads(path.read_text()) or (quick and name not in chosen):
            continue
        run = folder / path.stem
        brief = [f"train.max_steps={count}", f"train.save.every={count}", "train.precision=fp32"]
        brief += ['train.schedule={kind="constant", warmup_steps=0}', "train.validation.every=none"]
        brief += ["train.save.best=none", "train.average=none"]
        arguments = foveate("train", str(path), "--run", str(run), *brief)
        process = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=ROOT)
        files = {p.name: digest(p) for p in run.rglob("model.safetensors")}
        files |= {p.name: digest(p) for p in run.glob("*.json") if "tokenizer" in p.name}
        result[f"weights {name}"] = {"exit": process.returncode, "files": files}
        if process.returncode:
            result[f"weights {name}"]["stderr"] = clean(process.stderr)
        shutil.rmtree(run, ignore_errors=True)
    return result


def sources(count: int) -> str:
    """English lines of the embedded corpus' kind, the same for every version."""
    nouns = ["house", "garden", "school", "friend", "book", "window", "river", "doctor"]
    verbs = ["sees", "opens", "likes", "buys", "forgets", "paints"]
    colours = ["old", "small", "red", "new", "quiet"]
    lines = [
        f"The {colours[n % 5]} {nouns[n % 8]} {verbs[n % 6]} the {colours[n % 3]} {nouns[n % 7]}."
        for n in range(count)
    ]
    return "\n".join([*lines, "", "A dog , a cat and 3 birds !", "été 日本 \U0001f600"]) + "\n"


def translations(runs: Path, folder: Path, quick: bool, clean: Cleaner) -> Part:
    """200 translations with every search, and each run's own verb."""
    jobs: dict[str, tuple[list[str], str]] = {}
    text = sources(40 if quick else 200)
    for run in ("transformer", "rnnsearch", "joined", "guided", "cmudict"):
        for name, options in SEARCHES.items():
            if (runs / run).exists() and not (quick and run not in QUICK):
                lines = text if name not in ("mbr", "sample") else sources(10)
                jobs[f"translate {run} {name}"] = (
                    ["translate", str(runs / run), "--threads", "1", *options], lines,
                )  # fmt: skip
    jobs["score transformer"] = (["score", str(runs / "transformer")], "a house\tune maison\n")
    jobs["classify cbow"] = (["classify", str(runs / "cbow")], text)
    jobs["classify sst2"] = (["classify", str(runs / "sst2")], text)
    jobs["generate shakespeare"] = (
        ["generate", str(runs / "shakespeare"), "--seed", "1", "--max-length", "60"], "To be\n",
    )  # fmt: skip
    jobs["forecast patch"] = (["forecast", str(runs / "patch")], "")
    jobs["show"] = (["show", str(runs / "transformer")], "")
    return done(jobs, clean, folder)


def view_names() -> list[str]:
    listed = subprocess.run(foveate("look", "--help"), capture_output=True, text=True, check=True)
    lines = listed.stdout.partition("Commands:")[2].splitlines()
    return [line.split()[0] for line in lines if re.match(r"  \w", line)]


def views(runs: Path, folder: Path, quick: bool, clean: Cleaner) -> Part:
    """The text and the arrays of every view of every run."""
    requested = {"transformer": ["--text", ENGLISH], **{name: row[2] for name, row in RUNS.items()}}
    names = [n for n in view_names() if n not in ("report", "schedule", "positions", "steps")]
    jobs: dict[str, tuple[list[str], str]] = {}
    places: dict[str, list[Path]] = {}
    for run, question in requested.items():
        if not (runs / run).exists() or (quick and run not in QUICK):
            continue
        for view in names:
            if view in ("surface", "lengths", "horizon", "ablation") and quick:
                continue
            key = f"look {view} {run}"
            places[key] = [folder / f"{view}-{run}.json", folder / f"{view}-{run}.txt"]
            outs = [part for place in places[key] for part in ("--out", str(place))]
            some = WITHOUT_TEXT.get(view, question)
            jobs[key] = (["look", view, str(runs / run), *some, *outs], "")
    results = done(jobs, clean, folder)
    for key, files in places.items():
        results[key]["files"] = {p.suffix: digest(p) for p in files if p.is_file()}
    return results


WITHOUT_TEXT: dict[str, list[str]] = {
    "curves": [], "health": [], "horizon": [], "forecast": [], "surface": ["--steps", "3"],
    "lengths": ["--beam-size", "1"], "gradients": [],
}  # fmt: skip


def exports(runs: Path, folder: Path, quick: bool, clean: Cleaner) -> Part:
    """The files of every export of the transformer (--quick: of two)."""
    jobs: dict[str, tuple[list[str], str]] = {}
    forms = ["safetensors", "huggingface", "ctranslate2", "onnx", "argos"]
    for form in forms[:2] if quick else forms:
        place = folder / f"export-{form}"
        more = ["--language", "en:fr"] if form == "argos" else []
        run = str(runs / "transformer")
        jobs[f"export {form}"] = (
            ["export", run, str(place), "--to", form, "--check", "5", *more], "",
        )  # fmt: skip
    results = done(jobs, clean, folder)
    for form in forms:
        place = folder / f"export-{form}"
        if place.exists():
            results[f"export {form}"]["files"] = files_of(place)
    return results


def messages(runs: Path, folder: Path, quick: bool, clean: Cleaner) -> Part:
    """The help of every command, the list of kinds, and what each mistake is answered with."""
    commands = [["--help"], *([verb, "--help"] for verb in VERBS), ["kinds"]]
    jobs = {"help " + " ".join(line): (line, "") for line in commands}
    for view in view_names():
        jobs[f"help look {view}"] = (["look", view, "--help"], "")
    table = ROOT / "tests" / "mistakes.toml"
    if table.is_file():
        made = {"RUNS": str(runs), "TMP": str(folder), "CONFIGS": str(CONFIGS)}
        for number, row in enumerate(tomllib.loads(table.read_text())["mistake"]):
            for name, content in row.get("files", {}).items():
                place = folder / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(filled(content, made), encoding="utf-8")
            arguments = [filled(part, made) for part in row["command"]]
            jobs[f"mistake {number:03} {row['what']}"] = (arguments, row.get("stdin", ""))
    return done(jobs, clean, folder)


def filled(text: str, names: dict[str, str]) -> str:
    """A text with ``{RUNS}``, ``{TMP}`` and ``{CONFIGS}`` written out."""
    for name, value in names.items():
        text = text.replace("{" + name + "}", value)
    return text


VERBS = (
    *("train", "evaluate", "score", "translate", "classify", "generate", "forecast", "caption"),
    *("distill", "shortlist", "studio", "export", "import", "show", "average", "kinds", "doctor"),
    *("quickstart", "version", "look", "data", "bench", "align", "serve"),
)


def routes(runs: Path, folder: Path, quick: bool, clean: Cleaner) -> Part:
    """The status, headers that matter and body of every HTTP route on a fixed set of requests."""
    result: Part = {}
    run = str(runs / "transformer")
    with serving(["serve", run, "--as", "en:fr"], "/health") as ask:
        for name, (method, path, body) in TRANSLATION.items():
            result[f"http serve {name}"] = ask(method, path, body, clean)
    with serving(["studio", run, str(runs / "patch"), "--no-browser"], "/api/v1/runs") as ask:
        listed = json.loads(ask("GET", "/api/v1/runs", None, clean)["body"])
        first, second = (item["id"] for item in listed["runs"])
        for name, (method, path, body) in STUDIO.items():
            place = path.replace("{run}", first).replace("{series}", second)
            result[f"http studio {name}"] = ask(method, place, body, clean)
    return result


Asked = dict[str, tuple[str, str, Any]]
TRANSLATION: Asked = {
    "one": ("POST", "/translate", {"q": ENGLISH, "source": "en", "target": "fr"}),
    "list": ("POST", "/translate", {"q": [ENGLISH, ""], "source": "en", "target": "fr"}),
    "more": ("POST", "/translate", {"q": ENGLISH, "source": "en", "target": "fr",
                                    "alternatives": 2}),
    "html": ("POST", "/translate", {"q": "<p>The <b>old</b> house.</p>", "source": "en",
                                    "target": "fr", "format": "html"}),
    "auto": ("POST", "/translate", {"q": ENGLISH, "source": "auto", "target": "fr"}),
    "form": ("POST", "/translate", b"q=The+house.&source=en&target=fr"),
    "no target": ("POST", "/translate", {"q": ENGLISH, "source": "en"}),
    "other language": ("POST", "/translate", {"q": ENGLISH, "source": "en", "target": "xx"}),
    "no JSON": ("POST", "/translate", b"{"),
    "detect": ("POST", "/detect", {"q": ENGLISH}),
    "languages": ("GET", "/languages", None),
    "settings": ("GET", "/frontend/settings", None),
    "health": ("GET", "/health", None),
    "ready": ("GET", "/ready", None),
    "score": ("POST", "/v1/score", {"pairs": [[ENGLISH, "La maison est rouge."]]}),
    "align": ("POST", "/v1/align", {"pairs": [[ENGLISH, "La maison est rouge."]]}),
    "stream": ("POST", "/v1/stream", {"q": ENGLISH, "source": "en", "target": "fr"}),
    "openapi": ("GET", "/openapi.json", None),
    "nowhere": ("GET", "/nowhere", None),
}  # fmt: skip
STUDIO: Asked = {
    "runs": ("GET", "/api/v1/runs", None),
    "run": ("GET", "/api/v1/runs/{run}", None),
    "examples": ("GET", "/api/v1/runs/{run}/examples", None),
    "answer": ("POST", "/api/v1/runs/{run}/answer", {"text": ENGLISH}),
    "model": ("GET", "/api/v1/runs/{run}/model", None),
    "attention": ("POST", "/api/v1/runs/{run}/views/attention", {"text": ENGLISH}),
    "heads": ("POST", "/api/v1/runs/{run}/views/heads", {"text": ENGLISH}),
    "beam": ("POST", "/api/v1/runs/{run}/views/beam", {"text": ENGLISH}),
    "links": ("POST", "/api/v1/runs/{run}/views/links", {"text": ENGLISH}),
    "forecast": ("POST", "/api/v1/runs/{series}/views/forecast", {}),
    "no view": ("POST", "/api/v1/runs/{run}/views/nothing", {"text": ENGLISH}),
    "no run": ("GET", "/api/v1/runs/nothing", None),
    "bad field": ("POST", "/api/v1/runs/{run}/answer", {"texts": ENGLISH}),
    "trainings": ("GET", "/api/v1/trainings", None),
    "openapi": ("GET", "/openapi.json", None),
}


@contextlib.contextmanager
def serving(arguments: list[str], ready: str) -> Iterator[Callable[..., Part]]:
    """A server of these arguments on a free port, and what asks it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        foveate(*arguments, "--port", str(port)),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def ask(method: str, path: str, body: Any, clean: Cleaner) -> Part:
        form = isinstance(body, bytes) and b"=" in body
        kind = "application/x-www-form-urlencoded" if form else "application/json"
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        address = f"http://127.0.0.1:{port}{path}"
        request = urllib.request.Request(address, data, {"content-type": kind}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                status, headers, text = reply.status, reply.headers, reply.read().decode()
        except urllib.error.HTTPError as error:
            status, headers, text = error.code, error.headers, error.read().decode()
        text = re.sub(r'"id": ?"[^"]*"|[0-9a-f]{32,}', "ID", text) if path != ready else text
        return {
            "status": status,
            "type": headers.get("content-type"),
            "body": clean(text.replace(str(port), "PORT")),
        }

    try:
        for _ in range(240):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}{ready}", timeout=5).close()
                break
            time.sleep(0.25)
        yield ask
    finally:
        process.terminate()
        process.wait(30)


# ------------------------------------------------------------------------------ comparing


def compare(before: Path, after: Path) -> int:
    """Print every piece of work whose entry differs; 1 where one does."""
    old, new = (json.loads(path.read_text()) for path in (before, after))
    different = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    for key in different:
        print(key)
        for field in sorted((old.get(key) or {}).keys() | (new.get(key) or {}).keys()):
            item, two = ((side.get(key) or {}).get(field) for side in (old, new))
            if item != two:
                print(f"    {field}:\n      - {shorten(item)}\n      + {shorten(two)}")
    print(f"{len(different)} of {len(old.keys() | new.keys())} differ")
    return int(bool(different))


def shorten(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else text[:400] + " …"


if __name__ == "__main__":
    main()
