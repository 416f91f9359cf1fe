"""Names and wording: identifiers are the field's terms, and a public class name stands once.

CONTRIBUTING.md holds the glossary.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import sizes

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "foveate"

# Words that say nothing of what a thing is; a name is split at "_" and at capitals.
BANNED_WORD = re.compile(
    r"found|said|told|here|one|kept|given|wanted|company|desk|shelf|crew|staff|hands|whoever"
    r"|visit|way|asked|looked|aids|hears|foreteller|filler|underway|unseen"
)
# "wanted" is a field of the studio's API, "found_inf" an attribute of PyTorch's optimizers
TERMS = {
    "found_inf", "one_hot", "not_found", "one_line", "one_line_errors", "sums_to_one",
    "_at_least_one", "OneTokenizer", "wanted",
}  # fmt: skip

# Metaphors and riddles in docstrings, messages and help texts.
BANNED_PHRASES = re.compile(
    r"\blives? here\b|\bcompany\b|\bwhoever\b|\bwho is new\b|\blook(s|ed) at by\b"
    r"|\bnobody (looks|waits|asks|has looked)\b|\bsees itself\b|\bhears\b|\bcrew\b"
    r"|\bshelf\b|\bis said of\b|\bis asked of\b|\bas it is told\b"
    r"|\bat the desk\b|\bin (short|long) hand\b| (is|are) no ",
    re.IGNORECASE,
)
RIDDLE = re.compile(r"(Of|That|Their|Its|As|Whose|Where|What|How|Which|Whether)\b")


def words_of(name: str) -> Iterator[str]:
    """``kept_rows`` → kept, rows; ``KeptRows`` the same."""
    return (word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name))


def assigned_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of all that a module defines, assigns, or takes as an argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def banned_names(tree: ast.AST) -> list[tuple[int, str]]:
    return [
        (line, name)
        for line, name in assigned_names(tree)
        if name not in TERMS and any(map(BANNED_WORD.fullmatch, words_of(name)))
    ]


def banned_phrases(tree: ast.AST) -> list[tuple[int, str]]:
    return [
        (node.lineno, match.group())
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for match in BANNED_PHRASES.finditer(node.value)
    ]


def riddles(tree: ast.AST) -> list[tuple[int, str]]:
    """Docstrings that begin in the middle of a sentence."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    texts = [(node, ast.get_docstring(node)) for node in ast.walk(tree) if isinstance(node, kinds)]
    return [(getattr(n, "lineno", 1), text) for n, text in texts if text and RIDDLE.match(text)]


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def test_names_and_texts_are_plain() -> None:
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {text!r}"
        for path, tree in trees().items()
        for line, text in (*banned_names(tree), *banned_phrases(tree), *riddles(tree))
    ]
    assert not faults, "\n".join(faults)


def test_a_public_class_name_stands_in_one_module() -> None:
    assert not sizes.names_twice(sizes.texts_of(SOURCE).values())
    assert sizes.names_twice(["class A: pass", "class A: pass\nclass _B: pass"]) == {"A"}


def test_the_checks_can_fail() -> None:
    text = "class KeptRows:\n    def f(self, one_way):\n        self.found = '''Whoever'''"
    bad = ast.parse(text)
    assert [name for _, name in banned_names(bad)] == ["KeptRows", "one_way", "found"]
    assert banned_phrases(bad) == [(3, "Whoever")]
    assert [line for line, _ in riddles(ast.parse("'Of it.'\nclass A:\n  'That.'"))] == [1, 2]
    assert not banned_names(ast.parse("one_hot = done = phone = 1"))
