"""Views of what goes on inside a run are those of `foveate.look`, of the right example."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from copier import copier
from foveate.config import ConfigError
from foveate.look.draw.analyses import lens
from foveate.look.flow import rollout
from foveate.look.perturbations import importance
from foveate.look.relevance import relevance
from foveate.look.views import find
from foveate.look.views.options import Question
from foveate.run import Run, passes
from small_runs import made as small
from tolerances import differ

ASKED = Question(text="b a", target="B A")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return copier(tmp_path_factory.mktemp("inside"))


def forced(run: Run) -> Any:
    return passes.forced(run.task, run.model, "b a", "B A")


@pytest.mark.parametrize(("name", "made"), [("rollout", rollout), ("relevance", relevance)])
def test_flow_is_drawn_over_the_words(run: Run, name: str, made: Any) -> None:
    view: Any = find(name).draw([run], ASKED)
    record = made(forced(run))
    assert np.array_equal(view.array, record.select("cross_attention"))
    assert (view.rows, view.columns) == (["B", "A", "</s>"], ["b", "a", "</s>"])
    own: Any = find(name).draw([run], ASKED.model_copy(update={"block": "decoder.self_attention"}))
    assert own.columns == ["<s>", "B", "A"]


def test_ablation_and_lens_are_of_the_example(run: Run) -> None:
    lost = importance([forced(run)], "cross_attention")
    view = find("ablation").draw([run], ASKED.model_copy(update={"block": "cross_attention"}))
    arrays = view.arrays()
    assert np.array_equal(arrays["loss"], np.stack(list(lost.values())).flatten())
    record = forced(run).record()
    largest = [record.drawn(name).max(axis=-1).mean(axis=-1) for name in lost]
    assert np.array_equal(arrays["x"], np.stack(largest).flatten())
    result = find("lens").draw([run], ASKED).arrays()
    assert np.array_equal(result["p"], lens(forced(run)).values.array)
    assert result["produced"].tolist() == ["B", "A", "</s>"]


def test_silent_heads_are_silent_in_every_view_and_then_speak_again(run: Run) -> None:
    plain = find("attention").draw([run], ASKED).arrays()["weights"]
    silent = ASKED.model_copy(update={"silence": ("layers.1.cross_attention",)})
    shown = find("attention").draw([run], silent)
    assert not shown.arrays()["weights"].any() and "silenced" in shown.caption
    assert not find("links").draw([run], silent).figure().axes[0].lines
    kinds = find("heads").draw([run], silent).kinds
    assert set(kinds["decoder.layers.1.cross_attention"]) == {"silenced"}
    changed = find("lens").draw([run], silent).arrays()["p"]
    assert differ(changed, find("lens").draw([run], ASKED).arrays()["p"])
    assert np.array_equal(find("attention").draw([run], ASKED).arrays()["weights"], plain)
    wrong = ASKED.model_copy(update={"silence": ("layers.7",)})
    with pytest.raises(ConfigError, match=r"no attention is called 'layers.7'; there are: encoder"):
        find("attention").draw([run], wrong)


def test_what_does_not_fit_says_why(run: Run) -> None:
    with pytest.raises(ConfigError, match="its model has no recurrent cells"):
        find("states").draw([run], ASKED)
    with pytest.raises(ConfigError, match="give an odd number"):
        find("surface").draw([run], ASKED.model_copy(update={"steps": 4}))


def test_the_surface_has_the_model_in_the_middle(run: Run) -> None:
    view: Any = find("surface").draw([run, run], ASKED.model_copy(update={"steps": 3}))
    local = -forced(run).scores().mean()
    assert f"middle {local:.3g}" in view.sheets[0].scale_label
    assert np.isfinite(view.sheets[0].values.array).all()


def test_gates_and_states_of_a_translator_are_over_what_each_cell_reads(tmp_path: Path) -> None:
    rnn = small(tmp_path, ["rnn"], steps=2)["rnn"]
    requested = Question(text="the dog runs", target="le chien court")
    seen: list[Any] = []
    for layer in (-1, 0):  # of the decoder, of the encoder
        messages = requested.model_copy(update={"layer": layer})
        drawn: Any = find("gates").draw([rnn], messages)
        along: Any = find("states").draw([rnn], messages)
        assert all((gate > 0).all() and (gate < 1).all() for gate in drawn.arrays().values())
        assert list(drawn.sheets[0].columns) == list(along.labels)
        seen.append(list(along.labels))
    assert seen[0][0] == "<s>" and len(seen[0]) == 4
    assert seen[1][:3] == ["the", "dog", "runs"]
