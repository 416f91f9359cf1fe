"""A beam as lanes: the nodes that were given, in every form of the picture."""

from pathlib import Path

import pytest

from foveate.draw.lanes import LanesDrawing, Node, lanes
from tolerances import close


def node(number: int, parent: int | None, text: str, score: float, state: str = "live") -> Node:
    return Node.model_validate(
        {"id": number, "parent": parent, "text": text, "log_p": 2 * score, "score": score,
         "state": state}
    )  # fmt: skip


STEPS = [
    [node(0, None, "Un", -0.1), node(1, None, "Une", -2.0), node(2, None, "$x$", -3.0, "pruned")],
    [node(3, 0, " chat", -0.5), node(4, 1, "\u202e</b>", -2.5, "pruned")],
    [node(5, 3, "</s>", -0.6, "done")],
]


def test_numbers_are_those_given() -> None:
    view = lanes(STEPS, [0, 3, 5], "Un chat")
    arrays = view.arrays()
    assert arrays["step"].tolist() == [0, 0, 0, 1, 1, 2]
    assert arrays["parent"].tolist() == [-1, -1, -1, 0, 1, 3]
    close(arrays["log_p"], 2 * arrays["score"])
    [drawing] = view.drawings()
    assert isinstance(drawing, LanesDrawing)
    assert drawing.steps == STEPS and drawing.best == [0, 3, 5]


def test_the_text_has_every_beginning_and_marks_the_answer() -> None:
    text = lanes(STEPS, [0, 3, 5], "Un chat").text(width=100)
    lines = text.splitlines()
    assert lines[1] == "  1  [Un] -0.10  Une -2.00  $x$ -3.00×"
    assert lines[2] == "  2  [chat] -0.50  ⟨U+202E⟩</b> -2.50×"
    assert lines[3] == "  3  [</s>] -0.60■"
    assert all(len(line) <= 30 for line in lanes(STEPS).text(width=30).splitlines()[:3])


def test_the_figure_joins_children_with_their_parents(tmp_path: Path) -> None:
    ax = lanes(STEPS, [0, 3, 5]).plot()
    ends = {tuple(zip(*map(list, line.get_data()), strict=True)) for line in ax.lines}
    assert ends == {((0, 0), (1, 0)), ((0, 1), (1, 1)), ((1, 0), (2, 0))}
    assert len(ax.texts) == 6 and any("$x$" in text.get_text() for text in ax.texts)
    svg = lanes(STEPS, [0, 3, 5]).save(tmp_path / "b.svg").read_text("utf-8")
    assert "chat" in svg and "\u202e" not in svg


def test_what_cannot_be_a_beam_is_refused() -> None:
    with pytest.raises(ValueError, match="node 3 extends 0"):
        lanes(STEPS[1:])
    with pytest.raises(ValueError, match=r"no step has: \[7\]"):
        lanes(STEPS, [0, 7])
