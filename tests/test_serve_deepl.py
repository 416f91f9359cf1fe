"""Clients of DeepL use the server: its own, and requests as others send them."""

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepl
import httpx
import pytest
from fastapi import FastAPI

import own_loop
from foveate.config import ConfigError
from foveate.run import Run
from foveate.run.pack import pack
from foveate.serve.glossary_store import GlossaryStore
from foveate.serve.keys import KeyFile
from foveate.serve.translation_schemas import Limits
from serve_tools import client_of, program, running, sent, served
from test_odt import odt
from test_packed import no_torch

TEXT = "the dog runs"
BODY = {"source": "en", "target": "fr"}
LIMITS = Limits(characters=500, entries=10, glossaries=8)


@pytest.fixture(scope="module")
def url(app: FastAPI) -> Iterator[str]:
    with running(app) as port:
        yield f"http://127.0.0.1:{port}"


def send(app: FastAPI, method: str, path: str, **body: Any) -> httpx.Response:
    [answer] = sent(app, {"method": method, "url": f"/v2/{path}"} | body)
    return answer


def free(run: Run, text: str = TEXT) -> str:
    return str(run.translate([text])[0])


@pytest.fixture
def client(url: str) -> Iterator[deepl.DeepLClient]:
    client = deepl.DeepLClient("none", server_url=url)
    yield client
    client.close()


def test_the_client_of_deepl_translates(client: deepl.DeepLClient, run: Run) -> None:
    one = client.translate_text(TEXT, target_lang="FR")
    assert not isinstance(one, list)
    assert (one.text, one.detected_source_lang, one.billed_characters) == (free(run), "EN", 12)
    many = client.translate_text([TEXT, "a cat sleeps"], source_lang="EN", target_lang="FR")
    assert [each.text for each in many] == [free(run), free(run, "a cat sleeps")]
    html = client.translate_text(f"<b>{TEXT}</b>", target_lang="FR", tag_handling="html")
    assert html.text == f"<b>{free(run)}</b>"
    assert [each.code for each in client.get_source_languages()] == ["EN"]
    assert [each.code for each in client.get_target_languages()] == ["FR"]
    usage = client.get_usage()
    assert usage.character.valid and (usage.character.count or 0) >= 24
    pair = client.get_glossary_languages()[0]
    assert (pair.source_lang, pair.target_lang) == ("en", "fr")


def test_the_client_of_deepl_keeps_glossaries(client: deepl.DeepLClient, run: Run) -> None:
    word = "chat" if "chat" not in free(run) else "oiseau"
    glossary = client.create_glossary("mine", "EN", "FR", {"dog": word, "Bird": "oiseau"})
    assert (glossary.ready, glossary.entry_count, glossary.source_lang) == (True, 2, "EN")
    for own in (glossary, glossary.glossary_id):
        result = client.translate_text(TEXT, source_lang="EN", target_lang="FR", glossary=own)
        assert word in result.text.split()
    assert client.get_glossary_entries(glossary) == {"dog": word, "Bird": "oiseau"}
    assert client.get_glossary(glossary.glossary_id).name == "mine"
    assert glossary.glossary_id in [each.glossary_id for each in client.list_glossaries()]
    client.delete_glossary(glossary)
    with pytest.raises(deepl.GlossaryNotFoundException, match="no glossary has this id"):
        client.get_glossary(glossary.glossary_id)
    with pytest.raises(deepl.DeepLException, match="no glossary has this id"):
        client.translate_text(TEXT, source_lang="EN", target_lang="FR", glossary="gone")
    csv = client.create_glossary_from_csv("csv", "EN", "FR", io.StringIO(f"dog,{word},EN,FR\n"))
    assert client.get_glossary_entries(csv) == {"dog": word}
    client.delete_glossary(csv)


DEEPL = {"text": [TEXT], "target_lang": "FR"}
SOURCE = {"source_lang": "en"}
LONG = "\n".join(f"{n}\tx" for n in range(11))
ENTRIES = {"name": "a", "source_lang": "en", "target_lang": "fr", "entries": "a\tb"}
BAD_DEEPL: list[tuple[str, dict[str, Any], int, str]] = [
    ("translate", {"target_lang": "FR"}, 400, "text is missing"),
    ("translate", DEEPL | {"style_id": "x"}, 400, "style_id is not a field"),
    ("translate", DEEPL | {"target_lang": "DE"}, 400, "target_lang: DE is not supported"),
    ("translate", DEEPL | {"source_lang": "DE"}, 400, "source_lang: DE is not supported"),
    ("translate", DEEPL | {"text": ["", " "]}, 400, "text: no text to translate"),
    ("translate", DEEPL | {"text": ["a" * 501]}, 413, "501 characters at once; at most 500"),
    ("translate", DEEPL | {"formality": "more"}, 400, "formality"),
    ("translate", DEEPL | {"tag_handling": "xml"}, 400, "tag_handling"),
    ("translate", DEEPL | {"glossary_id": "x"}, 400, "source_lang is required with a glossary"),
    ("translate", DEEPL | SOURCE | {"glossary_id": "x"}, 404, "no glossary has this id"),
    ("languages", {"type": "all"}, 400, "type: all is neither source nor target"),
    ("glossaries", ENTRIES | {"entries": ""}, 400, "entries is empty"),
    ("glossaries", ENTRIES | {"entries": "a\tb\nc"}, 400, "entries:2 has no translation"),
    ("glossaries", ENTRIES | {"entries": "a\t "}, 400, "entries:1 is not an entry"),
    ("glossaries", ENTRIES | {"entries": "a\tb\n\nA\tc"}, 400, "entries:3 and entries:1"),
    ("glossaries", ENTRIES | {"entries": LONG}, 413, "at most 10"),
    ("glossaries", ENTRIES | {"target_lang": "de"}, 400, "no model translates en to de"),
    ("glossaries", ENTRIES | {"name": ""}, 400, "name"),
    ("../v3/nothing", {}, 404, "page not found"),
]


@pytest.mark.parametrize(("path", "body", "status", "message"), BAD_DEEPL)
def test_errors_have_the_form_of_deepl(app, path, body, status, message) -> None:
    answer = send(app, "POST", path, json=body)
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["message"] and message in answer.json()["message"]


def test_keys_have_characters_and_glossaries_of_their_own(run: Run, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.jsonl")
    secrets = [keys.add(name) for name in ("ann", "bob")]
    app = served(run.path, keys=keys)
    ann, bob = ({"Authorization": f"DeepL-Auth-Key {secret}"} for secret in secrets)
    assert send(app, "POST", "translate", json=DEEPL, headers=ann).status_code == 200
    id = send(app, "POST", "glossaries", json=ENTRIES, headers=ann).json()["glossary_id"]
    for own, used, status in ((ann, 12, 200), (bob, 0, 404)):
        assert send(app, "GET", "usage", headers=own).json()["character_count"] == used
        assert send(app, "GET", f"glossaries/{id}", headers=own).status_code == status
    wrong = {"Authorization": "DeepL-Auth-Key x"}
    refused = send(app, "POST", "translate", json=DEEPL, headers=wrong)
    assert (refused.status_code, refused.json()) == (403, {"message": "this key is not valid"})
    for key, status in (("x", 403), (secrets[0], 200)):
        assert send(app, "GET", f"usage?auth_key={key}").status_code == status


@pytest.mark.parametrize("keeps", [False, True])
def test_glossaries_made_at_the_same_time_are_all_there(run, tmp_path, keeps) -> None:
    app = served(run.path)
    app.state.service.glossaries = GlossaryStore(50, tmp_path if keeps else None)

    async def made() -> tuple[Any, list[int]]:
        async with client_of(app) as client:
            codes = list[int]()
            for _ in range(3):  # more at once would be too many for the server
                new = [client.post("/v2/glossaries", json=ENTRIES) for _ in range(20)]
                codes += [answer.status_code for answer in await asyncio.gather(*new)]
            return (await client.get("/v2/glossaries")).json(), codes

    stored, codes = own_loop.run(made())
    assert len({glossary["glossary_id"] for glossary in stored["glossaries"]}) == 50
    assert sorted(codes) == [201] * 50 + [456] * 10
    assert len(list(tmp_path.glob("*.json"))) == (50 if keeps else 0)


def test_glossaries_survive_in_a_folder(tmp_path: Path) -> None:
    store = GlossaryStore(2, tmp_path)
    first = store.new("a", "", "en:fr", {"dog": "chien"})
    store.new("b", "key:ann", "en:fr", {})
    with pytest.raises(Exception, match="2 glossaries already"):
        store.new("c", "", "en:fr", {})
    again = GlossaryStore(2, tmp_path)
    assert again.get(first.id, "") == first and [each.name for each in again.of("key:ann")] == ["b"]
    again.delete(first.id, "")
    assert GlossaryStore(2, tmp_path).of("") == []
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"x\.json is not a glossary"):
        GlossaryStore(2, tmp_path)


def test_all_of_it_works_without_pytorch(run: Run, tmp_path: Path) -> None:
    file = pack(run, tmp_path / "m.safetensors")
    with program(file, "--as", "en:fr", environment=no_torch(tmp_path)) as server:
        client = deepl.DeepLClient("none", server_url=server.url)
        glossary = client.create_glossary("a", "EN", "FR", {"dog": "chat"})
        both = {"source_lang": "EN", "target_lang": "FR"}
        assert "chat" in client.translate_text(TEXT, **both, glossary=glossary).text.split()
        body = {"q": TEXT, "source": "en", "target": "fr", "quality": True, "ban": "le"}
        answer = httpx.post(f"{server.url}/translate", json=body, timeout=60).json()
        assert answer["quality"][0]["logProbability"] < 0
        upload = {"file": ("a.odt", odt())}
        sent = httpx.post(f"{server.url}/translate_file", data=BODY, files=upload, timeout=60)
        result = httpx.get(sent.json()["translatedFileUrl"], timeout=60).content
        assert result.startswith(b"PK") and sent.json()["translatedFileUrl"].endswith("a_fr.odt")
        wrong = {"file": ("a.odt", b"%PDF-1.7")}
        refused = httpx.post(f"{server.url}/translate_file", data=BODY, files=wrong, timeout=60)
        error = "the file is not an ODT file: it is a PDF file; give it its own ending"
        assert refused.json() == {"error": error}
        assert httpx.get(server.url, timeout=30).status_code == 200
        assert server.end() == 0
    assert not any("torch" in line for line in server.other)
