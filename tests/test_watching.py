"""Runs that write, watched: tokens in a row are the text, whatever the tokenizer."""

from pathlib import Path

import pytest

from foveate.config import ConfigError
from foveate.data.tokenizer import EOS
from foveate.look.draw.lanes import LanesDrawing
from foveate.look.views import find
from foveate.look.views.options import Question
from foveate.look.views.watching import Watched
from foveate.run import Run


def test_bytes_of_a_character_are_one_part(runs: dict[str, Run]) -> None:
    language = Watched(runs["language"]).task
    ids = language.prefix_ids("é\n🙂a")
    parts = language.token_texts(ids)
    assert len(parts) == len(ids) == 8
    assert "".join(parts) == "é\n🙂a" == language.text_of(ids)
    assert sorted(parts, reverse=True)[:4] == ["🙂", "é", "a", "\n"]
    assert language.token_text(ids[:2], EOS) == "⏎"
    assert language.token_text([], ids[-1]) == "a"


def test_what_is_watched_is_what_is_written(runs: dict[str, Run]) -> None:
    watched = Watched(runs["transformer"])
    search = watched.task.search_config(watched.run.config.decode, "beam", beam_size=3).build()
    result = watched.write("the dog runs", search)
    [expected] = runs["transformer"].translate(["the dog runs"], beam_size=3, num_hypotheses=3)
    assert [item.text for item in result] == expected.hypotheses
    assert [item.score for item in result] == pytest.approx(expected.scores)
    names = [watched.name(item) for item in result[0].path if item.token != EOS]
    assert "".join(names) == result[0].text
    messages = watched.instead(result[0].path[0])
    assert len(messages[0].tokens) == len(messages[1]) == 8


def test_a_run_that_writes_nothing_says_so(runs: dict[str, Run]) -> None:
    with pytest.raises(ConfigError, match="cannot write text"):
        Watched(runs["classifier"])
    with pytest.raises(ConfigError, match="does not write text"):
        find("beam").draw([runs["classifier"]], Question(text="a"))


@pytest.mark.parametrize("name", ["transformer", "language"])
def test_the_beam_of_a_run_as_a_view(runs: dict[str, Run], name: str, tmp_path: Path) -> None:
    view = find("beam").draw([runs[name]], Question(text="the dog", beam_size=3))
    assert isinstance(view, LanesDrawing)
    arrays = view.arrays()
    assert (arrays["state"][arrays["id"] == arrays["best"][-1]] == "done").all()
    assert arrays["step"][arrays["id"] == arrays["best"][0]] == 0
    assert view.save(tmp_path / "b.png").stat().st_size > 1000
