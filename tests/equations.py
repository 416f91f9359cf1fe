"""Evaluates equations as they are printed: ``α_i = exp(e_i) / Σ_j exp(e_j)``, by NumPy arrays.

An equation is clauses with commas between them. The first is what is shown; others define symbols
(``f(x) = x σ(x)``), say what is solved for (``τ such that Σ_i α_i = 1``) or what an index counts,
and those of `PROSE` alone are not computed. Whatever cannot be read raises an error.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Values = Any  # a number or an array
Scope = dict[str, Any]
Term = Callable[[Scope], Values]

PROSE = re.compile(
    "of (keys|the keys|mixed keys|mixtures|this head|α̃)|α̃ of mixtures|the (context|read-out) of"
    "|0 where hidden"
)
TOKEN = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<over>(?:Σ|argmax|max)_[ijr])"
    r"|(?P<function>argmax|max|tanh|exp|elu|sin|cos|mean|var|bucket|ReLU|σ(?=\()|Φ|√|f(?=\())"
    r"|(?P<name>\[c of every head\]|PE\(t\)|⌈D/2⌉|φ\(\w+\)|mask_\w|"
    r"(?!Σ)[^\W\d_][\u0303′₁₂]*(?:_\{[^}]*\}|_\w)?)"
    r"|(?P<sign>[-+−⊙·/^=|‖;,()\[\]ᵀ²³₊])"
)
FUNCTIONS: dict[str, Callable[[Values], Values]] = {
    "tanh": np.tanh,
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
    "√": np.sqrt,
    "σ": lambda x: 1 / (1 + np.exp(-x)),
    "Φ": lambda x: np.vectorize(lambda each: (1 + math.erf(each / math.sqrt(2))) / 2)(x),
    "ReLU": lambda x: np.where(x > 0, x, 0),
    "elu": lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1),
    "max": lambda x: np.maximum(*x) if isinstance(x, tuple) else np.max(x),
    "mean": np.mean,
    "var": np.var,
}


def evaluated(text: str, symbols: Mapping[str, Any], counts: Mapping[str, Any]) -> Values:
    """The right side of a printed equation.

    ``symbols`` are values by name; one that ends in "_" is a series, of which ``v_i`` takes the
    number i. ``counts`` are the values of each index of a sum.
    """
    main, *clauses = clauses_of(text)
    scope: Scope = {"π": math.pi, **symbols, "range": dict(counts)}
    term, solved = Reader(re.sub("^[^ ]+ (=|←) ", "", main)).whole(), ""
    for clause in clauses:
        if PROSE.match(clause):
            continue
        if match := re.fullmatch(r"(\w) such that Σ_i α_i = 1", clause):
            solved = match[1]
        elif match := re.fullmatch(r"(\w) from 1 to (\d+)", clause):
            scope["range"][match[1]] = range(int(match[2]))
        elif match := re.fullmatch(r"PE\(t, (.+)\) = (.+)", clause):
            scope.setdefault("waves", []).append([Reader(part).whole() for part in match.groups()])
        else:
            name, _, body = clause.partition(" = ")
            scope[re.sub(r"\(x\)$", "", name).removesuffix("_i")] = Reader(body).whole()
    if "waves" in scope:
        scope["PE(t)"] = _waves(scope)
    return _solved(term, solved, scope) if solved else term(scope)


def _waves(scope: Scope) -> Values:
    """PE(t), whose clauses say where each wave stands: ``PE(t, 2i) = sin(ω)``."""
    each = [scope | {"i": i} for i in scope["range"]["i"]]
    placed = {int(at(s)): wave(s) for at, wave in scope["waves"] for s in each}
    return np.array([placed[k] for k in range(len(placed))])


def clauses_of(text: str) -> list[str]:
    """What stands between the commas that are in no brackets."""
    depth, clauses = 0, [""]
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            clauses.append("")
        else:
            clauses[-1] += letter
    return [clause.strip() for clause in clauses]


def _solved(term: Term, unknown: str, scope: Scope) -> Values:
    """The term where the unknown makes the sum over i 1; the sum falls as the unknown grows."""
    low, high = -1e3, 1e3
    for _ in range(60):
        middle = (low + high) / 2
        total = sum(term(scope | {unknown: middle, "i": i}) for i in scope["range"]["i"])
        low, high = (middle, high) if total > 1 else (low, middle)
    return term(scope | {unknown: high})


def _valued(name: str, scope: Scope) -> Values:
    """A symbol: by its whole name, or a number of a series or of a definition."""
    if name in scope and not callable(scope[name]):
        return scope[name]
    if callable(defined := scope.get(name)):
        return defined(scope)
    base, _, index = name.partition("_") if name[0] != "φ" else (name[:3], "", name[4:-1])
    at = tuple(scope[letter] for letter in index.strip("{}"))
    if callable(defined := scope.get(base)):
        return defined(scope | {"i": at[0]})
    return scope[base + "_"][at]


def _times(left: Values, right: Values) -> Values:
    """A product without a sign: of a matrix with what follows it, of a row with a matrix, else
    element by element.
    """
    sizes = np.ndim(left), np.ndim(right)
    of_matrices = sizes == (1, 2) or (sizes[0] == 2 and sizes[1])
    return left @ right if of_matrices else left * right


# Operators from those that bind least; one without a sign binds as a sign of a product does.
LEVELS: list[dict[str, Callable[[Values, Values], Values]]] = [
    {"+": np.add, "−": np.subtract},
    {"⊙": np.multiply},
    {"·": np.dot, "/": np.divide, "": _times},
]
PRODUCT = 2
PAIRS: dict[str, Callable[[Values, Values], Values]] = {  # in brackets
    "=": lambda a, b: float(a == b),
    ";": lambda a, b: np.concatenate((a, b)),
    ",": lambda a, b: (a, b),
}


class Reader:
    """Reads an expression by descent: sums of products of factors."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.kind, self.token, self.close = text, 0, "", "", False
        self.inside = ""  # the bar that is open
        self._next()

    def _next(self) -> str:
        """The token read; the one after it is looked at. ``close``: no space is before it."""
        before, start = self.token, self.at
        rest = self.text[start:].lstrip()
        self.at = len(self.text) - len(rest)
        self.close = self.at == start
        match = TOKEN.match(self.text, self.at)
        if rest and match is None:
            raise ValueError(f"{self.text!r} cannot be read from {rest!r}")
        self.kind, self.token = (match.lastgroup or "", match[0]) if match else ("", "")
        self.at += len(self.token)
        return before

    def _take(self, sign: str) -> None:
        if self.token != sign:
            raise ValueError(f"{self.text!r}: {sign!r} is missing before {self.token!r}")
        self._next()

    def whole(self) -> Term:
        term = self.sum()
        if self.token:
            raise ValueError(f"{self.text!r} cannot be read from {self.token!r}")
        return term

    def sum(self, level: int = 0) -> Term:
        """Operators of a level of `LEVELS`, between what those that bind more have joined."""
        if level == len(LEVELS):
            return self.factor()
        negative = level == 0 and self.token == "−" and self._next()
        joins, term = LEVELS[level], self.sum(level + 1)
        if negative:
            term = _both(np.multiply, lambda s: -1.0, term)
        while self.token and (self.token in joins or ("" in joins and self._begins())):
            sign = self._next() if self.token in joins else ""
            term = _both(joins[sign], term, self.sum(level + 1))
        return term

    def _begins(self) -> bool:
        """Whether a factor begins here: a bar that closes another does not."""
        return self.kind in ("number", "over", "function", "name") or self.token in (
            *("(", "["),
            *(() if self.inside else ("|", "‖")),
        )

    def factor(self) -> Term:
        term = self.atom()
        while self.token in ("ᵀ", "²", "³", "₊", "^") or (self.token == "[" and self.close):
            sign, inner = self._next(), term
            if sign == "[":
                place = self.sum()
                self._take("]")
                term = lambda s, of=inner, at=place: of(s)[at(s)]  # noqa: E731
                continue
            if sign == "^":
                term = _both(np.power, inner, self.atom())
                continue
            functions = {"ᵀ": lambda x: x[None, :], "²": np.square, "³": lambda x: x**3}
            change = (functions | {"₊": lambda x: np.maximum(x, 0)})[sign]
            term = lambda s, of=inner, f=change: f(of(s))  # noqa: E731
        return term

    def atom(self) -> Term:
        kind, token = self.kind, self._next()
        if kind == "number":
            return lambda s: float(token)
        if kind == "name":
            return lambda s: _valued(token, s)
        if kind == "over":
            return _over(*token.split("_"), self.sum(PRODUCT))
        if kind == "function":
            argument = self.atom() if self.token == "(" else self.factor()
            return lambda s: _applied(token, argument(s), s)
        if token in ("|", "‖"):
            self.inside = token
            inner, self.inside = self.sum(), ""
            self._take(token)
            size = np.abs if token == "|" else np.linalg.norm
            return lambda s: size(inner(s))
        if token in ("(", "["):
            return self._bracket({"(": ")", "[": "]"}[token])
        raise ValueError(f"{self.text!r} cannot be read from {token!r}")

    def _bracket(self, end: str) -> Term:
        term = self.sum()
        if self.token in PAIRS:
            term = _both(PAIRS[self._next()], term, self.sum())
        self._take(end)
        return term


def _both(join: Callable[[Values, Values], Values], left: Term, right: Term) -> Term:
    return lambda s: join(left(s), right(s))


def _applied(name: str, argument: Values, scope: Scope) -> Values:
    if name == "f":
        return scope["f"](scope | {"x": argument})
    return (FUNCTIONS.get(name) or scope[name])(argument)


def _over(name: str, index: str, term: Term) -> Term:
    """Σ, max or argmax over an index."""

    def value(scope: Scope) -> Values:
        each = [term(scope | {index: k}) for k in scope["range"][index]]
        if name == "argmax":
            return scope["range"][index][int(np.argmax(each))]
        return sum(each) if name == "Σ" else max(each)

    return value
