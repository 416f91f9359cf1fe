"""Several runs: who translates what, what is in memory, and weights that change while serving."""

import json
import shutil
from pathlib import Path

import pytest

from foveate.config import ConfigError
from foveate.documents.languages import Direction, directions
from foveate.run import Run, RunConfig, load
from foveate.serve.batching import TranslateLines
from foveate.serve.common import RequestError
from foveate.serve.runs import RunPool


def test_each_direction_has_its_run_and_is_loaded_once_when_asked_for(fleet: RunPool) -> None:
    assert fleet.table() == {"en": ["fr"], "fr": ["en"]}
    assert [place.run for place in fleet.runs.values()] == [None, None]
    result = fleet.find("fr", "en")
    assert result is not None and result[0].name == "rnn" and fleet.find("en", "de") is None
    fleet.run(result[0])
    assert [place.loads for place in fleet.runs.values()] == [0, 1]
    assert list(map(fleet.load, fleet.runs.values()))
    assert all(fleet.run(place) is place.run for place in fleet.runs.values())
    assert [place.loads for place in fleet.runs.values()] == [1, 1]


def test_what_was_used_least_of_late_makes_room(fleet: RunPool) -> None:
    first, second = fleet.runs.values()
    fleet.memory = max(first.weights(), second.weights()) + 10
    for place, other in ((first, second), (second, first), (first, second)):
        assert fleet.run(place) is fleet.run(place)
        assert place.run is not None and other.run is None
    assert (first.loads, second.loads) == (2, 1)
    fleet.memory = first.weights() + second.weights()
    assert fleet.run(second) and fleet.run(first) and first.run and second.run
    with pytest.raises(ConfigError, match="raise --weights"):
        RunPool([first.folder], {"transformer": "en:fr"}, memory=1000)


def test_a_training_that_goes_on_renews_the_answers(runs: dict[str, Run], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs["transformer"].path, folder)
    steps = sorted((folder / "checkpoints").iterdir())
    best = folder / "best.json"

    def choose(step: Path) -> None:
        best.write_text(json.dumps({"folder": f"checkpoints/{step.name}"}))

    choose(steps[0])
    fleet = RunPool([folder], {"run": "en:fr"})
    [place] = fleet.runs.values()

    def answer() -> str:
        answers = place.batcher.submit("a", TranslateLines(), ["the dog runs"])
        return str(answers.future.result(20)[0])

    first = load(folder, str(int(steps[0].name[5:])))
    assert answer() == str(first.translate(["the dog runs"])[0])
    choose(steps[-1])
    assert answer() == str(load(folder, "last").translate(["the dog runs"])[0])
    assert place.loads == 2
    weights = steps[0] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    choose(steps[0])
    assert answer() == str(load(folder, "last").translate(["the dog runs"])[0])
    assert place.loads == 2, "weights that cannot be read leave the old ones in use"


def test_a_run_that_cannot_be_loaded_is_told_without_its_path(runs, tmp_path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs["transformer"].path, folder)
    shutil.rmtree(folder / "checkpoints")
    fleet = RunPool([folder], {"run": "en:fr"})
    [place] = fleet.runs.values()
    with pytest.raises(RequestError) as refused:
        place.batcher.submit("a", TranslateLines(), ["x"]).future.result(20)
    assert refused.value.status == 503 and str(tmp_path) not in refused.value.message


SIDES = {"source": "{split}.en", "target": "{split}.fr"}


@pytest.mark.parametrize(
    ("task", "folder", "message", "results"),
    [
        ({"source": "a/{split}.en", "target": "a/{split}.fr.gz"}, "x", None, ("en", "fr", None)),
        ({"source": "tatoeba-en-fr/pairs.tsv"}, "x", None, ("en", "fr", None)),
        ({"source": "pairs.tsv"}, "my-de-en", None, ("de", "en", None)),
        ({"source": "pairs.tsv"}, "x", "en:pt-BR", ("en", "pt-BR", None)),
        (SIDES, "x", "de:it", ("de", "it", None)),
        ({"corpora": [SIDES | {"tag": "<2fr>"}]}, "x", None, ("en", "fr", "fr")),
        ({"corpora": [{"source": "p.tsv", "tag": "<2de>"}]}, "x", "en", ("en", "de", "de")),
    ],
)
def test_languages_are_told_by_files_tags_or_the_user(task, folder, message, results) -> None:
    encoder = {"kind": "transformer", "hidden_size": 16}
    model = {"kind": "encoder_decoder", "encoder": encoder, "decoder": encoder}
    config = RunConfig.parse({"task": {"kind": "translation"} | task, "model": model})
    assert directions(config.task.parts(), Path(folder), message) == [Direction(*results)]
