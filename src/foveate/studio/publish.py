"""Publish packed files as a page that runs them without a server: one HTML file, or a folder.

The page has the engine as WebAssembly (`foveate.engine.compiled.web_engine`) and each packed file,
gzipped, in base64; in a folder these are separate scripts, which browsers also load from disk.
Its policy allows only its own script, and no requests to other sites.
"""

import base64
import html
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from foveate.config import load_tree
from foveate.data.corpus import read_text
from foveate.data.text import TextData, at, is_table, read_pairs
from foveate.engine.compiled import web_engine
from foveate.engine.packed import PackedModel, load, packed_file, repack
from foveate.errors import ConfigError, UserError, install, not_built
from foveate.files import replace_file
from foveate.look.draw.page import asset as packaged_text
from foveate.look.draw.page import digest, inside_script

ENGINES = {"simd": "engine-wasm", "scalar": "engine-scalar"}
MOST_BYTES = 2**29  # of a packed file: the memory of WebAssembly has 2^32
CHUNK = 2**20  # bytes compressed between two progress reports
Progress = Callable[[str, int, int | None], None]
EXAMPLES, LENGTHS = 4, range(8, 61)  # inputs shown when a page opens, and their characters
TRIED = 16  # inputs from which those are chosen that are answered well
LAST = 1000  # lines of a file without splits from which examples are taken
PUBLISHED = ("sentencepiece", "sentencepiece_bpe", "published")
SUBWORDS = ("bpe", "unigram", *PUBLISHED)
TOKENIZERS = ("byte", "character", "word", "symbol", *SUBWORDS)
PAGE = Path(__file__).with_name("publish.html")


@dataclass
class PublishedFile:
    """A packed file, its model's name in the page, and example inputs, or a run to take them of."""

    path: Path
    name: str
    examples: Sequence[str] | Path = ()

    def described(self, number: int) -> dict[str, object]:
        """Return its description for the page. Raises ``ConfigError`` if a page cannot run it."""
        if (size := self.path.stat().st_size) > MOST_BYTES:
            raise ConfigError(
                f"{self.path} has {size:,} bytes; a page can run at most {MOST_BYTES:,}"
            )
        model = load(self.path, threads=1)
        header = model.header
        if header.format is not None:
            raise ConfigError(f"{self.path}: a page does not support data.format; train without it")
        own = self.examples
        kinds = [tree["config"]["kind"] for tree in header.tokenizers.values()]
        known = set(TOKENIZERS) - set(PUBLISHED if header.task == "language" else ())
        if unknown := next((kind for kind in kinds if kind not in known), None):
            raise ConfigError(f"{self.path}: a page does not support the tokenizer {unknown}")
        return {
            "name": self.name,
            "file": f"model-{number}",
            "task": header.task,
            "notes": notes(model),
            "examples": examples_of(own, model) if isinstance(own, Path) else list(own),
            "languages": model.sides("translate").languages if "translation" in header.task else [],
            "beamSize": header.search.beam_size,
            "temperature": header.search.temperature,
            "attends": bool(header.attentions),
            "subwords": any(kind in SUBWORDS for kind in kinds),
        }


def packed_run(run: Path, out: Path, precision: str, licence: str = "") -> Path:
    """Return the packed file of a run: copied from the one beside it, or else made by PyTorch."""
    file, why = packed_file(run)
    if file is not None:
        return repack(file, out, precision, licence)
    try:
        from foveate.run import load as load_run
        from foveate.run.pack import pack
    except ModuleNotFoundError:
        raise ConfigError(f"{run}: {why}: it is packed with PyTorch; {install('train')}") from None
    return pack(load_run(run), out, precision, licence)


def examples_of(run: Path, model: PackedModel) -> list[str]:
    """Return inputs from a run's test data, beginnings for a language model; none without data.

    Those that the packed ``model`` translates as the reference does come first. In a file that is
    not divided into splits, inputs are among the last lines.
    """
    references = dict[str, str]()
    try:
        tree = load_tree(run / "config.toml", resolved=True)
        task, data = tree["task"], tree["data"]
        sides = task["corpora"][0] if task.get("corpora") else task
        pattern, target = sides.get("source") or sides["text"], sides.get("target")
        data = TextData.parse(data | {"on_bad_line": "skip"})
        path = at(pattern, "test", data.splits)
        if target or is_table(path) or data.format is not None:
            corpus = read_pairs(path, target and at(target, "test", data.splits), data)
            references = dict(zip(corpus.sources, corpus.targets, strict=True))
        lines = list(references) or read_text(path, data).lines
    except (LookupError, TypeError, UserError, OSError):
        return []
    if "{split}" not in pattern:
        lines = lines[-LAST:]
    if task["kind"] == "language":
        lines = [" ".join(words[: 1 + len(words) // 2]) for words in map(str.split, lines)]
    lines = [line for line in dict.fromkeys(lines) if len(line) in LENGTHS][:TRIED]
    if task["kind"] == "translation" and sides is task:  # no tag names its language
        answers = model.translate(lines)
        wrong = {a: str(b) != references[a] for a, b in zip(lines, answers, strict=True)}
        lines.sort(key=wrong.__getitem__)
    return lines[:EXAMPLES]


def notes(model: PackedModel) -> list[str]:
    """Return size, precision, score and licence of a model, as the page shows them."""
    header, size, value = model.header, model.path.stat().st_size, model.header.scores.get("value")
    score = [f"{header.scores['figure']} {value:.3g} in validation"] if value is not None else []
    licence = [f"data: {header.licence}"] if header.licence else []
    return [f"{size / 1e3:,.0f} kB, {model.precision}", *score, *licence]


def publish(
    files: Sequence[PublishedFile],
    out: Path,
    title: str = "",
    single: bool = True,
    progress: Progress = lambda what, done, total: None,
    train: bool = False,
) -> int:
    """Write the page of packed files to a file or a folder; return its size in bytes.

    With ``train`` the page also trains a model, and then it needs no files.
    ``progress`` gets the current action, the bytes done and all bytes (None: unknown).
    Raises ``ConfigError`` if the page cannot run a file, or its script is not built, and
    `foveate.engine.compiled.LibraryError` if the engine is not compiled.
    """
    names = [file.name for file in files] or ["It learns in front of you"]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"two models are called {double}; rename one of the files")
    models = [file.described(number) for number, file in enumerate(files)]
    page = {"title": title or ", ".join(names), "models": models, "engines": ENGINES}
    parts = dict[str, Path]()
    for name in ENGINES.values() if files else ():
        progress(f"compiling {name}", 0, None)
        parts[name] = web_engine(name)
    parts |= {str(model["file"]): file.path for model, file in zip(models, files, strict=True)}
    total, done, texts = sum(path.stat().st_size for path in parts.values()), 0, dict[str, str]()
    for name, path in parts.items():
        compressed = lambda size, before=done: progress("compressing", before + size, total)  # noqa: E731
        texts[name] = packed_text(path.read_bytes(), compressed)
        done += path.stat().st_size
    if single:
        return _written(out, assemble(page, texts, train=train))
    (out / "files").mkdir(parents=True, exist_ok=True)
    size = _written(out / "index.html", assemble(page, {}, single=False, train=train))
    for name, text in texts.items():
        size += _written(out / "files" / f"{name}.js", f'foveateFiles["{name}"]="{text}"\n')
    return size


def _written(path: Path, text: str) -> int:
    replace_file(path, content := text.encode())
    return len(content)


def packed_text(content: bytes, progress: Callable[[int], None] = lambda done: None) -> str:
    """Return base64 of gzip with reproducible bytes; ``progress`` gets the number of bytes done."""
    packer, parts = zlib.compressobj(9, wbits=31), list[bytes]()
    for start in range(0, len(content), CHUNK):
        parts.append(packer.compress(content[start : start + CHUNK]))
        progress(min(len(content), start + CHUNK))
    return base64.b64encode(b"".join([*parts, packer.flush()])).decode()


def assemble(
    page: Mapping[str, object], files: Mapping[str, str], single: bool = True, train: bool = False
) -> str:
    """Return the page with its files, or for a folder (not ``single``) without any."""
    script, style = (asset(f"publish{'.train' * train}.{kind}") for kind in ("js", "css"))
    own = "" if single else "'self' "
    policy = (
        f"default-src 'none'; script-src {own}'{digest(script)}' 'wasm-unsafe-eval'; style-src "
        f"'{digest(style)}'; worker-src blob:; img-src data:; base-uri 'none'; form-action 'none'"
    )
    inside = (f'<script id="{k}" type="text/plain">{text}</script>' for k, text in files.items())
    return PAGE.read_text("utf-8").format(
        policy=policy,
        title=html.escape(f"{page['title']} · foveate"),
        style=style,
        page=inside_script(json.dumps(page, ensure_ascii=False)),
        files="\n".join(inside),
        script=script,
    )


def asset(name: str) -> str:
    """Return the script or the style of the page. Raises ``ConfigError`` if it is not built."""
    try:
        return packaged_text(name)
    except FileNotFoundError:
        raise ConfigError(not_built(f"{name} of the page")) from None
