"""How large the project is: make sizes, or python tools/sizes.py [FOLDER of another checkout]

Lines and lines of code (no blank line, comment or docstring) of each package, uses of ``Any``
(import lines not counted), casts and ignores, public class names that stand in two modules, circles
of imports, lines of tests and benchmarks, words of the docs, result files.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def texts_of(folder: Path, pattern: str = "*.py") -> dict[Path, str]:
    """Every file below a folder, by its path there."""
    paths = (path for path in sorted(folder.rglob(pattern)) if path.is_file())
    return {path.relative_to(folder): path.read_text("utf-8") for path in paths}


def packages(texts: dict[Path, str]) -> dict[str, int]:
    """Lines of each package; the modules that stand in none are ``.``."""
    lines = Counter[str]()
    for path, text in texts.items():
        lines[path.parts[0] if len(path.parts) > 1 else "."] += text.count("\n")
    return dict(sorted(lines.items()))


def code_lines(text: str) -> int:
    """Lines that hold code: no blank line, no comment, no docstring."""
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (*LAYOUT, tokenize.ENDMARKER):
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def plain(texts: Iterable[str]) -> Iterator[str]:
    """Every line that imports nothing."""
    lines = (line for text in texts for line in text.splitlines())
    return (line for line in lines if not line.lstrip().startswith(("from ", "import ")))


def uses_of_any(texts: Iterable[str]) -> int:
    """Uses of ``Any`` outside import lines."""
    return sum(len(re.findall(r"\bAny\b", line)) for line in plain(texts))


def casts_and_ignores(texts: Iterable[str]) -> int:
    """Lines with a cast or an ignored type error."""
    return sum(bool(re.search(r"\bcast\(|type: ignore", line)) for line in plain(texts))


def names_twice(texts: Iterable[str]) -> set[str]:
    """Public classes of modules whose name another module has too."""
    modules = Counter[str]()
    for text in texts:
        classes = {node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
        modules.update(name for name in classes if not name.startswith("_"))
    return {name for name, count in modules.items() if count > 1}


def module_name(path: Path) -> str:
    """``foveate.nn.scores`` for nn/scores.py."""
    return ".".join(("foveate", *path.with_suffix("").parts)).removesuffix(".__init__")


def imported_modules(texts: dict[Path, str]) -> dict[str, set[str]]:
    """What each module imports of the package, wherever in the file the import stands."""
    names = {module_name(path) for path in texts}
    graph = dict[str, set[str]]()
    for path, text in texts.items():
        imported = set[str]()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                full = (f"{module}.{alias.name}" for alias in node.names)
                imported |= {each if each in names else module for each in full}
        graph[module_name(path)] = (imported & names) - {module_name(path)}
    return graph


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The groups of modules that reach each other."""

    def reached(start: str) -> set[str]:
        seen, left = set[str](), [start]
        while left:
            new = graph[left.pop()] - seen
            seen |= new
            left += new
        return seen

    reach = {name: reached(name) for name in graph}
    within = (name for name in graph if name in reach[name])
    return {frozenset(b for b in reach[a] if a in reach[b]) for a in within}


def groups(text: str) -> int:
    """How many groups of classes and functions of a module do not refer to each other."""
    defined = dict[str, list[ast.stmt]]()
    for node in ast.parse(text).body:
        names = [getattr(node, "name", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        for name in filter(None, names):
            defined.setdefault(name, []).append(node)
    group = {name: {name} for name in defined}
    for name, nodes in defined.items():
        words = {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}
        for other in words & defined.keys():
            joined = group[name] | group[other]
            group |= dict.fromkeys(joined, joined)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    holds = {name for name, nodes in defined.items() if isinstance(nodes[0], kinds)}
    return len({id(members) for members in group.values() if members & holds})


def main(root: Path) -> None:
    """Print every figure of a checkout."""
    source = texts_of(root / "src" / "foveate")
    tests, benchmarks, tools = (texts_of(root / name) for name in ("tests", "benchmarks", "tools"))
    tables = texts_of(root / "benchmarks", "*.toml") | texts_of(root / "benchmarks", "*.lua")
    docs = texts_of(root / "docs", "*.md")
    figures = {f"src, {name}": lines for name, lines in packages(source).items()} | {
        "src, files": len(source),
        "src, lines": sum(text.count("\n") for text in source.values()),
        "src, code": sum(map(code_lines, source.values())),
        "Any": uses_of_any(source.values()),
        "casts and ignores": casts_and_ignores(source.values()),
        "names twice": len(names_twice(source.values())),
        "files of over three groups": sum(groups(text) > 3 for text in source.values()),
        "circles": len(circles(imported_modules(source))),
        "tests, lines": sum(text.count("\n") for text in tests.values()),
        "benchmarks, Python": sum(text.count("\n") for text in benchmarks.values()),
        "benchmarks, TOML and Lua": sum(text.count("\n") for text in tables.values()),
        "tools, lines": sum(text.count("\n") for text in tools.values()),
        "docs, words": sum(len(text.split()) for text in docs.values()),
        "docs, result files": len(list((root / "docs" / "results").iterdir())),
    }
    for name, value in figures.items():
        print(f"{name:26} {value:>7,}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT)
