"""The terminal picture: every weight in its place, within the width, for every ability."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from foveate.look.draw import colors
from foveate.look.draw.terminal import INKS, ability, matrix, steps

SOURCE = ("The agreement on the European Economic Area was signed in August 1992 . </s>").split()  # noqa: SIM905
TARGET = ("L' accord sur la zone économique européenne a été signé en août 1992 . </s>").split()  # noqa: SIM905
GOLD = [0, 1, 2, 3, 6, 5, 4, 7, 7, 8, 9, 10, 11, 12, 13]
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def hard() -> np.ndarray:
    weights = np.full((len(TARGET), len(SOURCE)), 0.01, np.float32)
    weights[range(len(GOLD)), GOLD] = 0.87
    return weights


def row_of(picture: str, word: str) -> str:
    return next(line for line in picture.split("\n") if line.lstrip().startswith(word + " "))


@pytest.mark.parametrize("ink", INKS)
def test_every_line_fits_and_the_strongest_cell_stands_under_its_word(ink: str) -> None:
    lines = matrix(hard(), TARGET, SOURCE, width=80, ink=ink).split("\n")
    assert max(cell_len(ESCAPE.sub("", line)) for line in lines) <= 80
    if full := {"shades": "█", "ascii": "@"}.get(ink):
        for target, source in (("zone", "Area"), ("européenne", "European"), ("L'", "The")):
            at = row_of("\n".join(lines), target).index(full)
            header = next(line for line in lines if re.search(rf"(^|\s){source}(\s|$)", line))
            end = header.index(source) + len(source)
            assert at <= end - 1 < at + 4, (target, source)


def test_colors_are_those_of_the_table_masked_cells_are_blank_and_labels_cannot_act() -> None:
    picture = matrix(np.array([[0.75, 0.25]]), ["t"], ["a", "b"], scale="absolute", ink="truecolor")
    result = re.findall(r"\x1b\[48;2;(\d+);(\d+);(\d+);", picture)
    expected = colors.table()[colors.indices(np.array([0.75, 0.25]))]
    assert [tuple(map(int, f)) for f in result] == [tuple(map(int, w)) for w in expected]
    assert re.search(r"m +75 +\x1b", picture)
    weights = np.array([[1.0, 0.0], [0.5, 0.5]])
    picture = matrix(weights, ["x", "y"], ["a", "b"], scale="row", ink="shades")
    assert row_of(picture, "x").count("█") * 2 == row_of(picture, "y").count("█")
    assert "·" not in row_of(picture, "x")
    picture = matrix(np.ones((1, 1)), ["\x1b[2J"], ["a\nb"], ink="shades")
    assert "\x1b" not in picture and "⟨U+001B⟩[2J" in picture and "a⟨U+000A⟩b" in picture


def test_what_does_not_fit_is_said() -> None:
    words = [f"word{i}" for i in range(60)]
    picture = matrix(np.full((120, 60), 1 / 60), [f"r{i}" for i in range(120)], words, width=80)
    output = " ".join(picture.split())
    shown = int(re.search(r"columns (\d+) to 60", output)[1]) - 1
    assert max(map(cell_len, ESCAPE.sub("", picture).split("\n"))) <= 80
    assert f"with {1 - shown / 60:.0%} of the weight" in output
    assert "not shown: rows 101 to 120" in output
    assert "1 word0" in picture  # too many for steps: numbered, and listed
    with pytest.raises(ValueError, match="is too narrow"):
        matrix(np.ones((1, 1)), ["word"], ["a"], width=3)


@given(st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=12))
def test_steps_end_over_their_columns(words: list[str]) -> None:
    ends = [12 + 4 * k for k in range(len(words))]
    lines = steps(words, ends, "│")
    for k, word in enumerate(words):
        own = [n for n, line in enumerate(lines) if line[: ends[k] + 1].endswith(word)]
        assert own, word
        assert all(line[ends[k]] == "│" for line in lines[own[-1] + 1 :])


def stream(encoding: str = "utf-8", screen: bool = True) -> Any:
    return SimpleNamespace(encoding=encoding, isatty=lambda: screen)


def test_ability() -> None:
    screen = stream()
    assert ability(screen, {"COLORTERM": "truecolor", "TERM": "xterm-256color"}) == "truecolor"
    assert ability(screen, {"TERM": "xterm-256color"}) == "256"
    assert ability(screen, {"COLORTERM": "truecolor", "NO_COLOR": "1"}) == "shades"
    assert ability(screen, {"TERM": "dumb"}) == "shades"
    assert ability(stream(screen=False), {"COLORTERM": "truecolor"}) == "shades"  # a file
    assert ability(stream("ascii", screen=False), {}) == "ascii"
    assert ability(screen, {"NO_COLOR": "1", "COLORTERM": "truecolor"}, color=True) == "truecolor"
