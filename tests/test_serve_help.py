"""Glossary, memory, banned phrases and own rules help on every route, and are told at the start."""

from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from foveate.config import ConfigError
from foveate.documents.memory import Assistance, AssistedRun, Glossary, holds
from foveate.documents.spans import Rules
from foveate.run import Run
from foveate.serve.runs import RunPool, equip
from serve_tools import ask, get, program, served, upload

TMX = """<tmx version="1.4"><header srclang="en"/><body><tu>
<tuv xml:lang="en"><seg>a cat sleeps</seg></tuv><tuv xml:lang="fr"><seg>il dort</seg></tuv></tu>
</body></tmx>"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "terms.tsv").write_text("dog\tchat|fille\n", "utf-8")
    (folder / "memory.tsv").write_text("a cat sleeps\tdepuis la mémoire\n", "utf-8")
    (folder / "memory.tmx").write_text(TMX, "utf-8")
    return folder


@pytest.fixture(scope="module")
def app(longer_run: Run, files: Path) -> FastAPI:
    own = {"glossary": [str(files / "terms.tsv")], "memory": [str(files / "memory.tsv")]}
    output = own | {"ban": ["chien"]}
    return served(longer_run.path, options=output, rules=Rules((r"ORD-\w+",)))


TEXT = "the dog runs ORD-x1\na cat sleeps\n"


def test_all_routes_have_the_same_help(app: FastAPI, longer_run: Run, files: Path) -> None:
    own = Assistance(Glossary.read(files / "terms.tsv"), banned=["chien"])
    [first] = AssistedRun(longer_run, own).translate(["the dog runs"])
    assert holds(str(first), ("chat", "fille"))
    reference = f"{first} ORD-x1\ndepuis la mémoire\n"
    assert ask(app, q=TEXT)["translatedText"] == reference
    html = ask(app, q=f"<p>{TEXT}", format="html")["translatedText"]
    assert "ORD-x1" in html and html.startswith("<p>")
    assert upload(app, "a.txt", TEXT.encode())[1].decode() == reference
    lines = get(app, "/metrics")[0].text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and line[0] != "#")
    values = {name: float(value) for name, value in pairs}
    assert values['foveate_memory_hits{by="exact",run="transformer"}'] >= 1
    assert values['foveate_terms{run="transformer",state="present"}'] >= 1
    assert values['foveate_terms{run="transformer",state="missing"}'] == 0


def test_alternatives_hold_the_terms_and_the_best_stays(app: FastAPI) -> None:
    best = ask(app, q="the dog runs")["translatedText"]
    result = ask(app, q="the dog runs", alternatives=3)
    assert result["alternatives"]
    for text in (best, result["translatedText"], *result["alternatives"]):
        assert holds(text, ("chat", "fille")) and not holds(text, ("chien",))
    known = ask(app, q="a cat sleeps", alternatives=3)
    assert known == {"translatedText": "depuis la mémoire", "alternatives": []}


def test_each_direction_has_its_own(fleet: RunPool, files: Path) -> None:
    terms, tmx = files / "terms.tsv", files / "memory.tmx"
    output = equip(fleet, [f"en:fr={terms}"], [str(tmx)], fuzzy=80)
    assert output[0].startswith(f"en:fr (transformer): glossary {terms} (terms: 1), memory {tmx}")
    assert "pairs: 1, 80 % alike will do" in output[0]
    assert output[1].startswith(f"fr:en (rnn): memory {tmx}") and "glossary" not in output[1]
    [helped] = fleet.runs["rnn"].assistance.values()
    assert helped.assistance.memory.find("il dort") == ("a cat sleeps", 100.0)
    assert equip(fleet) == []


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"glossary": ["terms.tsv"]}, r"write --glossary en:fr=terms.tsv"),
        ({"glossary": ["de:fr=terms.tsv"]}, "de:fr is not a direction or run; there are: en:fr"),
        ({"glossary": ["en:fr=terms.tsv", "transformer=terms.tsv"]}, "are both for en:fr"),
        ({"glossary": ["en:fr=wrong.tsv"]}, "wrong.tsv:2 is not an entry"),
        ({"memory": ["rnn=wrong.tsv"]}, "wrong.tsv:2 has no tab"),
        ({"memory": ["other.tmx"]}, "other.tmx has no pair from en to fr"),
        ({"memory": ["500"]}, "for a limit of MiB say --weights"),
    ],
)
def test_what_is_wrong_is_named(fleet, files, message, words, monkeypatch) -> None:
    monkeypatch.chdir(files)
    Path("wrong.tsv").write_text("dog\tchien\ncat\n", "utf-8")
    Path("other.tmx").write_text(TMX.replace('"fr"', '"de"'), "utf-8")
    with pytest.raises(ConfigError, match=words):
        equip(fleet, **message)


def test_the_program_says_what_helps(run: Run, files: Path) -> None:
    memory: list[str | Path] = ["--memory", files / "memory.tsv", "--protect", r"ORD-\w+"]
    with program(run.path, "--as", "en:fr", "--no-studio", *memory) as server:
        output = [server.process.stdout.readline() for _ in range(2)]
        assert output[0].startswith("en:fr (transformer): memory") and "pairs: 1" in output[0]
        assert output[1] == "protected: ORD-\\w+\n"
        body = {"q": "a cat sleeps", "source": "en", "target": "fr"}
        result = httpx.post(f"{server.url}/translate", json=body, timeout=60).json()
        assert result == {"translatedText": "depuis la mémoire"}
