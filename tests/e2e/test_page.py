"""The page of attention in a browser, from a file, without a network."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from foveate.look.draw import colors
from foveate.look.draw.maps import attention_page
from foveate.look.records import AttentionRecord

pytestmark = pytest.mark.browser

SOURCE = "the European Economic Area was signed . </s>".split()  # noqa: SIM905
TARGET = "la zone économique européenne a été signée . </s>".split()  # noqa: SIM905
GOLD = [0, 3, 2, 1, 4, 4, 5, 6, 7]
CROSS = "decoder.layers.{}.cross_attention"
MATRIX = ".fv-cells[role=application]"
Visit = Callable[..., Any]


def sentence(seed: int = 0) -> AttentionRecord:
    rng = np.random.default_rng(seed)

    def heads(height: int, width: int) -> np.ndarray:
        return rng.dirichlet(np.ones(width) * 0.5, (3, height)).astype(np.float32)

    maps = {f"encoder.layers.{n}.self_attention": heads(8, 8) for n in range(2)}
    for n in range(2):
        weights = heads(9, 8) * 0.3
        weights[:, range(9), GOLD] += 0.7
        maps[CROSS.format(n)] = weights
    rows = {"encoder.self_attention": SOURCE, "": TARGET}
    return AttentionRecord(maps, rows, {"": SOURCE}, title=f"sentence {seed}")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "attention.html"
    path.write_text(attention_page([sentence(0), sentence(1)]), "utf-8")
    return path.as_uri()


def reading(page: Any) -> tuple[str, str, float]:
    """What the page says: row, column, weight."""
    text = page.inner_text(".fv-reading")
    result = re.fullmatch(r"“(.*)” ← “(.*)”: weight (\d\.\d+)", text)
    assert result, text
    return result[1], result[2], float(result[3])


def center(page: Any, row: int, column: int) -> tuple[float, float]:
    cells = page.locator(MATRIX)
    box, lies = cells.bounding_box(), cells.evaluate("e => ({...e.dataset})")
    left, top, across, down = (float(lies[name]) for name in ("left", "top", "across", "down"))
    return box["x"] + left + (column + 0.5) * across, box["y"] + top + (row + 0.5) * down


def test_the_number_under_the_pointer_is_that_of_numpy(open_url: Visit, address: str) -> None:
    page = open_url(address)
    weights = sentence().maps[CROSS.format(1)].mean(0)
    for row, column in ((1, 3), (3, 1), (8, 7), (0, 0), (6, 2)):
        page.mouse.move(*center(page, row, column))
        target, source, weight = reading(page)
        assert (target, source) == (TARGET[row], SOURCE[column])
        assert weight == pytest.approx(weights[row, column], abs=6e-5)


PIXELS = """(cells) => {
  const canvas = cells.querySelector('canvas');
  return [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data];
}"""


def test_the_canvas_shows_the_colors_of_the_table(open_url: Visit, address: str) -> None:
    page = open_url(address)
    page.get_by_label("absolute").check()
    page.get_by_role("button", name="layer 0, head 2").click()
    weights = sentence().maps[CROSS.format(0)][2]
    expected = colors.table()[colors.indices(colors.scale("absolute").levels(weights))]
    seen = np.array(page.locator(MATRIX).evaluate(PIXELS)).reshape(9, 8, 4)  # a pixel for each cell
    np.testing.assert_array_equal(seen[..., :3], expected)


def test_the_keyboard_reaches_cells_layers_and_heads(open_url: Visit, address: str) -> None:
    page = open_url(address)
    maps = sentence().maps
    page.focus(MATRIX)
    for key in [*["ArrowUp"] * len(TARGET), *["ArrowLeft"] * len(SOURCE)]:
        page.keyboard.press(key)
    assert reading(page)[:2] == (TARGET[0], SOURCE[0])
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    assert reading(page)[:2] == (TARGET[2], SOURCE[1])
    page.keyboard.press("[")
    page.keyboard.press(".")
    page.keyboard.press(".")
    assert "layer 0, head 1" in page.inner_text(".fv-others")
    assert reading(page)[2] == pytest.approx(maps[CROSS.format(0)][1][2, 1], abs=6e-5)
    page.keyboard.press(",")
    page.keyboard.press(",")
    page.keyboard.press("]")
    page.keyboard.press("]")  # the last layer stays
    assert "layer 1 (the last; counted from 0), mean of the heads" in page.inner_text(".fv-others")
    assert reading(page)[2] == pytest.approx(maps[CROSS.format(1)].mean(0)[2, 1], abs=6e-5)
    assert page.evaluate("document.activeElement.className") == "fv-cells"


def test_pointing_at_a_word_shows_what_it_is_linked_to(open_url: Visit, address: str) -> None:
    page = open_url(address)
    page.locator("[data-side=row] .fv-word").nth(1).hover()
    assert reading(page)[:2] == ("zone", "Area")
    assert page.locator(".fv-links path").count() >= 1
    page.locator("[data-side=column] .fv-word").nth(1).hover()
    assert reading(page)[:2] == ("européenne", "European")
    word = page.locator("[data-side=row] .fv-word").nth(3)
    shade = word.evaluate("e => getComputedStyle(e).backgroundColor")
    assert re.fullmatch(r"rgb\(253, 224, 71\)", shade)  # the strongest, in full


def test_blocks_and_sentences_are_chosen(open_url: Visit, address: str) -> None:
    page = open_url(address)
    page.get_by_role("radio", name="encoder self-attention").check()
    weights = sentence().maps["encoder.layers.1.self_attention"].mean(0)
    between = weights[:6, :6][~np.eye(6, dtype=bool)]  # two different words; no "." and "</s>"
    assert reading(page)[2] == pytest.approx(between.max(), abs=6e-5)  # opens on the strongest
    assert page.evaluate("document.activeElement.type") == "radio"  # the keyboard keeps its place
    page.get_by_role("radio", name="decoder cross-attention").check()
    page.get_by_label("next sentence").click()
    page.mouse.move(*center(page, 4, 4))
    weights = sentence(1).maps[CROSS.format(1)].mean(0)
    assert reading(page)[2] == pytest.approx(weights[4, 4], abs=6e-5)


def test_the_table_says_the_same(open_url: Visit, address: str) -> None:
    page = open_url(address)
    page.click("summary")
    page.locator(".fv-twin td").nth(9 * 8).wait_for(state="attached")  # it is filled as it opens
    cells = page.locator(".fv-twin td").all_inner_texts()[1:]
    weights = sentence().maps[CROSS.format(1)].mean(0)
    np.testing.assert_allclose(np.float64(cells).reshape(9, 8), weights, atol=6e-5)
    assert page.locator(".fv-twin th[scope=row]").all_inner_texts() == TARGET


def test_every_control_has_a_name_and_is_large_enough(open_url: Visit, address: str) -> None:
    page = open_url(address, 360)
    for control in page.locator("button:visible, select:visible").all():
        box = control.bounding_box()
        assert min(box["width"], box["height"]) >= 24
        assert control.evaluate("e => e.getAttribute('aria-label') || e.textContent.trim()")


TIMED = """() => new Promise((done) => {
  const start = performance.now();
  document.querySelector('input[value=absolute]').click();  // all maps are drawn again
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
})"""


def test_a_hundred_words_are_drawn_within_a_third_of_a_second(open_url: Visit, tmp_path) -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(100), (8, 100)).astype(np.float32)
    record = AttentionRecord({CROSS.format(n): weights for n in range(6)}, {}, {})
    (tmp_path / "a.html").write_text(attention_page([record]), "utf-8")
    page = open_url((tmp_path / "a.html").as_uri())
    took = page.evaluate(TIMED)
    assert took < 300
