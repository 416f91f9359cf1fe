"""How large and how connected the package is: python benchmarks/house.py [--source DIR] [--json]

Counts below ``src/foveate``: files, lines, lines of code (without blank lines, comments and
docstrings), uses of ``Any``, casts and ignores, questions asked by string (``hasattr`` and
``getattr`` on tasks and models, ``.can("…")``), public class names that stand in more than one
module, and circles of imports, those inside functions included. ``--source`` is another checkout's
``src/foveate``, so that two versions are counted by the same rules.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from typer import Option

import harness

PACKAGE = Path(__file__).parent.parent / "src" / "foveate"
BY_STRING = re.compile(r"hasattr\([^)]*(task|model)|getattr\([^)]*(task|model|objective)|\.can\(")


def main(
    source: Path = PACKAGE, as_json: Annotated[bool, Option("--json", help="print JSON")] = False
) -> None:
    counted = count(source)
    if as_json:
        print(json.dumps(counted, indent=1))
    else:
        for name, value in counted.items():
            print(f"{name:20} {value if isinstance(value, int) else len(value):>7,}")


def count(package: Path) -> dict[str, int | list[str]]:
    """Every figure of a package by its name."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    sizes = sorted(text.count("\n") for text in texts.values())
    used = [line for text in texts.values() for line in text.splitlines()]
    plain = [line for line in used if not line.lstrip().startswith(("from ", "import "))]
    return {
        "files": len(texts),
        "lines": sum(sizes),
        "code lines": sum(map(code_lines, texts.values())),
        "median file": sizes[len(sizes) // 2],
        "largest file": sizes[-1],
        "Any": sum(len(re.findall(r"\bAny\b", line)) for line in plain),
        "casts and ignores": sum(bool(re.search(r"\bcast\(|type: ignore", line)) for line in plain),
        "asked by string": sum(bool(BY_STRING.search(line)) for line in plain),
        "names twice": names_twice(texts),
        "circles": circles(package, texts),
    }


def code_lines(text: str) -> int:
    """Lines that hold code: no blank line, no comment, no docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (
            *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT),
            *(tokenize.DEDENT, tokenize.ENDMARKER),
        ):
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def names_twice(texts: dict[Path, str]) -> list[str]:
    """Public classes of modules whose name another module has too."""
    where: dict[str, set[Path]] = defaultdict(set)
    for path, text in texts.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].add(path)
    return sorted(name for name, paths in where.items() if len(paths) > 1)


def circles(package: Path, texts: dict[Path, str]) -> list[str]:
    """Groups of modules that import each other, wherever in the file the import stands."""
    names = {module_name(package, path): text for path, text in texts.items()}
    graph = {
        name: {m for m in imported(text) if m in names} - {name} for name, text in names.items()
    }
    reach = {name: reachable(graph, name) for name in graph}
    within = (a for a in graph if a in reach[a])
    groups = {tuple(sorted(b for b in reach[a] if a in reach[b])) for a in within}
    return [" ".join(group) for group in sorted(groups)]


def module_name(package: Path, path: Path) -> str:
    parts = [package.name, *path.relative_to(package).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(text: str) -> Iterator[str]:
    """Every dotted name that a module imports, with and without its last part."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    result: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in result:
            result.add(name)
            waiting.extend(graph[name])
    return result


if __name__ == "__main__":
    harness.run(main)
