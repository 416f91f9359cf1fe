"""What a request brings: glossary, memory, protected texts, banned phrases; quality on request."""

import json
from typing import Any

import pytest
from fastapi import FastAPI

from foveate.run import Run
from foveate.serve.translation_schemas import Limits
from serve_tools import ask, asked, get, served, upload
from tolerances import MODEL, near

TEXT = "the dog runs"
LIMITS = Limits(entries=20, phrases=5)


def other_words(run: Run) -> tuple[str, str]:
    """A word of the free translation, and one that it lacks."""
    words = str(run.translate([TEXT])[0]).split()
    return words[-1], next(w for w in ("chat", "mange", "oiseau") if w not in words)


def test_each_request_has_terms_of_its_own(app: FastAPI, run: Run) -> None:
    free = str(run.translate([TEXT])[0])
    _, term = other_words(run)
    forms: list[Any] = [{"dog": term}, {"Dog": [term]}]
    forms += [f"# ours\ndog\t{term}\n", f'{{"dog": "{term}"}}']
    for glossary in forms:
        assert term in ask(app, glossary=glossary)["translatedText"].split(), glossary
    assert ask(app)["translatedText"] == free, "no other request has it"
    _, file = upload(app, "a.txt", TEXT.encode(), glossary=f"dog\t{term}")
    assert term in file.decode().split()


def test_a_memory_answers_before_the_model_and_after_that_of_the_server(run: Run, tmp_path) -> None:
    memory = "the dog runs\tdu serveur\na cat sleeps\tle chat du serveur\n"
    (tmp_path / "own.tsv").write_text(memory)
    app = served(run.path, options={"memory": [str(tmp_path / "own.tsv")]})
    texts = [TEXT, "a cat sleeps", "the dog sings"]
    free = str(run.translate([texts[2]])[0])
    body = ask(app, texts, memory={TEXT: "de la demande"}, quality=True)
    assert body["translatedText"] == ["de la demande", "le chat du serveur", free]
    assert [each[0]["logProbability"] is None for each in body["quality"]] == [True, True, False]
    alike = ask(app, "the dog runs now", memory=f"{TEXT}\tde la demande", fuzzy=70)
    assert alike["translatedText"] == "de la demande"
    assert ask(app)["translatedText"] == "du serveur"


def test_texts_are_protected_and_phrases_banned(app: FastAPI, run: Run) -> None:
    word, _ = other_words(run)
    assert word not in ask(app, ban=word)["translatedText"].split()
    assert "Zyx Dog" in ask(app, "the Zyx Dog runs", protect=["Zyx Dog"])["translatedText"]
    assert "zyxen" not in ask(app, "the zyxen runs", protect="zyx")["translatedText"]  # whole words
    assert "foveate_terms" in get(app, "/metrics")[0].text


def test_sentences_that_stay_in_the_source_language_are_counted(app: FastAPI) -> None:
    """The translation of the memory has no place for the address, half of which is bold."""
    html = "<p>See http://a.b/c<b>d</b> now. The dog runs.</p>"
    memory = {"See http://a.b/cd now.": "un."}
    body = ask(app, html, format="html", memory=memory)
    assert body["translatedText"].startswith("<p>See http://a.b/c<b>d</b> now. ")
    assert body["untranslated"] == 1
    assert ask(app, [html, html], format="html", memory=memory)["untranslated"] == 2
    assert "untranslated" not in ask(app, "<p>The <b>dog</b> runs.</p>", format="html")
    answer, _ = upload(app, "a.html", html.encode(), memory=json.dumps(memory))
    assert answer.json()["untranslated"] == 1


def test_quality_is_the_log_probability_of_the_model(app: FastAPI, run: Run) -> None:
    [answer] = run.translate([TEXT])
    body = ask(app, f"{TEXT}\na cat sleeps", quality=True)
    first, second = body["quality"]
    assert first["source"] == TEXT and second["source"] == "a cat sleeps"
    assert first["logProbability"] == near(answer.outputs[0].log_probability, terms=MODEL)
    assert first["tokens"] == 1 + len(answer.outputs[0].ids)
    assert "quality" not in ask(app)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"glossary": {"": "x"}}, "glossary: '' is not an entry"),
        ({"glossary": {"dog": " "}}, "glossary: 'dog' is not an entry"),
        ({"glossary": {"dog": []}}, "glossary: 'dog' is not an entry"),
        ({"glossary": {"dog": "a", "Dog": "b"}}, "glossary: 'dog' translate 'Dog' differently"),
        ({"glossary": "dog\ta\n\nDog\tb"}, "glossary:3 and glossary:1 translate 'Dog' differently"),
        ({"glossary": "dog"}, "glossary:1 is not an entry: write TERM TAB"),
        ({"glossary": "{dog"}, "glossary begins with { but is not a JSON object"),
        ({"glossary": '{"dog": 3}'}, "the translation of 'dog' is not a string"),
        ({"glossary": 3}, "glossary"),
        ({"glossary": {"a": "b"}, "ban": ["B"]}, "glossary, ban: 'b' is required and banned"),
        ({"memory": "the dog runs"}, "memory:1 has no tab"),
        ({"memory": {"a": ""}}, "memory: 'a' needs a sentence"),
        ({"protect": ["a", " "]}, "protect: an entry is empty"),
        ({"fuzzy": 10}, "fuzzy"),
        ({"glosary": {"dog": "chien"}}, "glosary is not a field; did you mean glossary?"),
    ],
)
def test_what_is_wrong_with_them_is_named(app: FastAPI, fields: Any, message: str) -> None:
    answer = asked(app, **fields)
    assert answer.status_code == 400, answer.text
    assert list(answer.json()) == ["error"] and message in answer.json()["error"]


def test_glossaries_memories_and_bans_are_bounded(app: FastAPI) -> None:
    many = {f"w{n}": "x" for n in range(21)}
    for fields in ({"glossary": many}, {"memory": many}, {"ban": list("abcdef")}):
        answer = asked(app, **fields)
        assert answer.status_code == 413 and "at most" in answer.json()["error"]


def test_a_search_without_a_beam_holds_no_terms(run: Run, monkeypatch) -> None:
    app = served(run.path)
    [own] = app.state.service.pool.runs.values()
    monkeypatch.setattr(type(own), "search", "greedy")
    answer = asked(app, glossary={"dog": "x"})
    assert answer.status_code == 400
    assert "greedy search cannot force terms" in answer.json()["error"]
