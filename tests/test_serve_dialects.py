"""Clients of other services use the server: DeepL's own, and requests as the others send them."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepl
import httpx
import pytest
from deepl.api_data import MultilingualGlossaryDictionaryEntries
from fastapi import FastAPI

import foveate.engine.packed
import own_loop
from foveate.config import ConfigError
from foveate.pack import pack
from foveate.run import Run
from foveate.server.glossary_store import GlossaryStore
from foveate.server.keys import KeyFile
from foveate.server.translation_schemas import Limits
from serve_tools import client_of, program, running, served
from test_odt import odt

TEXT = "the dog runs"
BODY = {"source": "en", "target": "fr"}


@pytest.fixture(scope="module")
def app(run: Run) -> FastAPI:
    return served(run.path, Limits(characters=500, entries=10, glossaries=8))


@pytest.fixture(scope="module")
def url(app: FastAPI) -> Iterator[str]:
    with running(app) as port:
        yield f"http://127.0.0.1:{port}"


def send(app: FastAPI, method: str, path: str, **body: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with client_of(app) as client:
            return await client.request(method, path, **body)

    return own_loop.run(ask())


def free(run: Run, text: str = TEXT) -> str:
    return str(run.translate([text])[0])


# ------------------------------------------------------------------------------ DeepL


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
    with pytest.raises(deepl.GlossaryNotFoundException, match="no glossary of this id"):
        client.get_glossary(glossary.glossary_id)
    with pytest.raises(deepl.DeepLException, match="no glossary of this id"):
        client.translate_text(TEXT, source_lang="EN", target_lang="FR", glossary="gone")
    csv = client.create_glossary_from_csv("csv", "EN", "FR", io.StringIO(f"dog,{word},EN,FR\n"))
    assert client.get_glossary_entries(csv) == {"dog": word}
    client.delete_glossary(csv)


def test_the_client_of_deepl_keeps_glossaries_of_several_pairs(client: deepl.DeepLClient) -> None:
    entries = MultilingualGlossaryDictionaryEntries("EN", "FR", {"dog": "chien"})
    glossary = client.create_multilingual_glossary("ours", [entries])
    [info] = glossary.dictionaries
    assert (info.source_lang, info.target_lang, info.entry_count) == ("EN", "FR", 1)
    more = MultilingualGlossaryDictionaryEntries("EN", "FR", {"cat": "chat"})
    changed = client.update_multilingual_glossary_dictionary(glossary, more)
    assert changed.dictionaries[0].entry_count == 2
    assert client.update_multilingual_glossary_name(glossary, "theirs").name == "theirs"
    replaced = client.replace_multilingual_glossary_dictionary(glossary, more)
    assert replaced.entry_count == 1
    own = client.get_multilingual_glossary_entries(glossary, "EN", "FR").dictionaries
    assert own[0].entries == {"cat": "chat"} or own[0].entries == "cat\tchat"
    assert client.list_multilingual_glossaries()[-1].name == "theirs"
    client.delete_multilingual_glossary_dictionary(glossary, source_lang="EN", target_lang="FR")
    assert client.get_multilingual_glossary(glossary.glossary_id).dictionaries == []
    client.delete_multilingual_glossary(glossary)


DEEPL = {"text": [TEXT], "target_lang": "FR"}
SOURCE = {"source_lang": "en"}
LONG = "\n".join(f"{n}\tx" for n in range(11))
ENTRIES = {"name": "a", "source_lang": "en", "target_lang": "fr", "entries": "a\tb"}
BAD_DEEPL: list[tuple[str, dict[str, Any], int, str]] = [
    ("/v2/translate", {"target_lang": "FR"}, 400, "text is missing"),
    ("/v2/translate", DEEPL | {"style_id": "x"}, 400, "style_id: there is no such field"),
    ("/v2/translate", DEEPL | {"target_lang": "DE"}, 400, "target_lang: DE is not supported"),
    ("/v2/translate", DEEPL | {"source_lang": "DE"}, 400, "source_lang: DE is not supported"),
    ("/v2/translate", DEEPL | {"text": ["", " "]}, 400, "text: there is no text to translate"),
    ("/v2/translate", DEEPL | {"text": ["a" * 501]}, 413, "501 characters at once; at most 500"),
    ("/v2/translate", DEEPL | {"formality": "more"}, 400, "formality"),
    ("/v2/translate", DEEPL | {"tag_handling": "xml"}, 400, "tag_handling"),
    ("/v2/translate", DEEPL | {"glossary_id": "x"}, 400, "source_lang: name it where"),
    ("/v2/translate", DEEPL | SOURCE | {"glossary_id": "x"}, 404, "no glossary of this id"),
    ("/v2/languages", {"type": "all"}, 400, "type: all is neither source nor target"),
    ("/v2/glossaries", ENTRIES | {"entries": ""}, 400, "entries: there are none"),
    ("/v2/glossaries", ENTRIES | {"entries": "a\tb\nc"}, 400, "entries:2 has no translation"),
    ("/v2/glossaries", ENTRIES | {"entries": "a\t "}, 400, "entries:1 is not an entry"),
    ("/v2/glossaries", ENTRIES | {"entries": "a\tb\n\nA\tc"}, 400, "entries:3 translates 'A'"),
    ("/v2/glossaries", ENTRIES | {"entries": LONG}, 413, "at most 10"),
    ("/v2/glossaries", ENTRIES | {"target_lang": "de"}, 400, "no model translates en to de"),
    ("/v2/glossaries", ENTRIES | {"name": ""}, 400, "name"),
    ("/v3/glossaries", {"name": "a"}, 400, "a name and dictionaries"),
    ("/v3/nothing", {}, 404, "no such page"),
]  # fmt: skip


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
    assert send(app, "POST", "/v2/translate", json=DEEPL, headers=ann).status_code == 200
    id = send(app, "POST", "/v2/glossaries", json=ENTRIES, headers=ann).json()["glossary_id"]
    used = [
        send(app, "GET", "/v2/usage", headers=own).json()["character_count"] for own in (ann, bob)
    ]
    assert used == [12, 0]
    status = [
        send(app, "GET", f"/v2/glossaries/{id}", headers=own).status_code for own in (ann, bob)
    ]
    assert status == [200, 404]
    wrong = {"Authorization": "DeepL-Auth-Key x"}
    refused = [
        send(app, "POST", "/v2/translate", json=DEEPL, headers=wrong),
        send(app, "GET", "/language/translate/v2?key=x&q=a&target=fr"),
        send(app, "POST", "/imme?token=x", json={}),
    ]
    assert [answer.status_code for answer in refused] == [403] * 3
    assert refused[0].json() == {"message": "this key is not valid"}
    assert refused[1].json()["error"]["errors"][0]["reason"] == "forbidden"
    assert refused[2].json() == {"error": "this key is not valid"}
    for path in (
        f"/language/translate/v2?key={secrets[0]}&q=a&target=fr",
        f"/v2/usage?auth_key={secrets[0]}",
    ):
        assert send(app, "GET", path).status_code == 200


def test_glossaries_survive_in_a_folder(tmp_path: Path) -> None:
    store = GlossaryStore(2, tmp_path)
    first = store.new("a", "", {"en:fr": {"dog": "chien"}})
    store.new("b", "key:ann", {})
    with pytest.raises(Exception, match="2 glossaries already"):
        store.new("c", "", {})
    again = GlossaryStore(2, tmp_path)
    assert again.get(first.id, "") == first and [each.name for each in again.of("key:ann")] == ["b"]
    again.delete(first.id, "")
    assert GlossaryStore(2, tmp_path).of("") == []
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"x\.json holds no glossary"):
        GlossaryStore(2, tmp_path)


# ------------------------------------------------------------------------------ Google

SINGLE = "/translate_a/single?client=gtx&sl=auto&tl=fr&hl=fr&dt=t&dt=bd&ie=UTF-8&oe=UTF-8"
SINGLE += "&otf=1&ssel=0&tsel=0&tk=xxxx"


def test_what_clients_of_google_send(app: FastAPI, run: Run) -> None:
    body = {"q": [TEXT, f"<i>{TEXT}</i>"], "target": "fr", "source": "en"}
    [first, second] = send(app, "POST", "/language/translate/v2", json=body).json()["data"][
        "translations"
    ]
    assert (
        first == {"translatedText": free(run)} and second["translatedText"] == f"<i>{free(run)}</i>"
    )
    path = f"/language/translate/v2?q={TEXT}&target=fr-CA&format=text"
    assert send(app, "GET", path).json()["data"]["translations"] == [
        {"translatedText": free(run), "detectedSourceLanguage": "en"}
    ]
    listed = send(app, "GET", "/language/translate/v2/languages?target=en").json()["data"][
        "languages"
    ]
    assert {"language": "fr", "name": "French"} in listed
    found = send(app, "POST", "/language/translate/v2/detect", json={"q": TEXT}).json()["data"]
    assert found["detections"][0][0]["language"] == "en"


def test_what_googletrans_and_pages_send(app: FastAPI, run: Run) -> None:
    for answer in (
        send(app, "GET", f"{SINGLE}&q={TEXT}"),
        send(
            app,
            "POST",
            "/translate_a/single",
            data={"client": "gtx", "sl": "en", "tl": "fr", "q": TEXT},
        ),
    ):
        tree = answer.json()
        assert "".join(part[0] for part in tree[0]) == free(run) and tree[2] == "en"
        assert tree[0][0][1] == TEXT and tree[8][0] == ["en"] and 0 < tree[8][-2][0] <= 1
    tree = send(app, "GET", f"{SINGLE}&dj=1&q={TEXT}").json()
    assert tree["sentences"][0]["trans"] == free(run) and tree["src"] == "en"


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/language/translate/v2?q=a", 400, "target is missing"),
        ("/language/translate/v2?q=&target=fr", 400, "q: there is no text"),
        ("/language/translate/v2?q=a&target=de", 400, "target: de is not supported; there are: fr"),
        (
            "/language/translate/v2?q=a&target=fr&glossary=x",
            400,
            "glossary: there is no such field",
        ),
        (f"/language/translate/v2?q={'a' * 501}&target=fr", 413, "at most 500"),
        ("/translate_a/single?q=a&tl=de", 400, "tl: de is not supported"),
        ("/translate_a/single?q=a&tl=fr&sl=de", 400, "sl: de is not supported; there are: en"),
        ("/translate_a/single?q=a&tl=fr&foo=1", 400, "foo: there is no such field"),
        ("/translate_a/other", 404, "no such page"),
    ],
)
def test_errors_have_the_form_of_google(app, path, status, message) -> None:
    answer = send(app, "GET", path)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, status)
    assert message in error["message"] and error["errors"][0]["message"] == error["message"]


# ------------------------------------------------------------------------------ extensions


def test_an_extension_may_use_the_server_where_its_origin_is_named(run: Run) -> None:
    origin = "chrome-extension://abcdefgh"
    body = {"target_lang": "fr", "text_list": [TEXT]}
    for origins, status, allowed in (([], 403, None), ([origin], 200, origin)):
        app = served(run.path, origins=origins)
        answer = send(app, "POST", "/imme", json=body, headers={"origin": origin})
        assert answer.status_code == status
        assert answer.headers.get("access-control-allow-origin") == allowed


def test_what_extensions_send(app: FastAPI, run: Run) -> None:
    body: dict[str, Any] = {"source_lang": "auto", "target_lang": "fr", "text_list": [TEXT, ""]}
    assert send(app, "POST", "/imme", json=body).json() == {
        "translations": [
            {"detected_source_lang": "en", "text": free(run)},
            {"detected_source_lang": "en", "text": ""},
        ]
    }
    kiss = {"from": "en", "to": "fr-FR"}
    single = {"text": free(run), "src": "en"}
    assert send(app, "POST", "/kiss", json=kiss | {"text": TEXT}).json() == single
    assert send(app, "POST", "/kiss", json=kiss | {"texts": [TEXT]}).json() == {
        "translations": [single]
    }


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/imme", {"target_lang": "fr"}, "text_list is missing"),
        ("/imme", {"target_lang": "fr", "text_list": []}, "text_list: there is no text"),
        (
            "/imme",
            {"target_lang": "zh-CN", "text_list": ["a"]},
            "target_lang: zh-CN is not supported",
        ),
        ("/kiss", {"to": "fr"}, "texts: there is no text"),
        ("/kiss", {"to": "fr", "from": "de", "text": "a"}, "from: de is not supported"),
        ("/kiss", {"to": "fr", "text": "a", "prompt": "x"}, "prompt: there is no such field"),
    ],
)
def test_errors_have_the_form_of_extensions(app, path, body, message) -> None:
    answer = send(app, "POST", path, json=body)
    assert answer.status_code == 400 and list(answer.json()) == ["error"]
    assert message in answer.json()["error"]


# ------------------------------------------------------------------------------ without PyTorch


def test_all_of_it_works_without_pytorch(run: Run, tmp_path: Path) -> None:
    file = pack(run, tmp_path / "m.safetensors", calibrate=5)
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    with program(file, "--as", "en:fr", environment={"PYTHONPATH": path}) as server:
        client = deepl.DeepLClient("none", server_url=server.url)
        glossary = client.create_glossary("a", "EN", "FR", {"dog": "chat"})
        both = {"source_lang": "EN", "target_lang": "FR"}
        assert "chat" in client.translate_text(TEXT, **both, glossary=glossary).text.split()
        single = httpx.get(f"{server.url}{SINGLE}&q={TEXT}").json()
        assert single[0][0][0] == free(run)
        body = {"q": TEXT, "source": "en", "target": "fr", "quality": True, "ban": "le"}
        answer = httpx.post(f"{server.url}/translate", json=body).json()
        assert 0 <= answer["quality"][0]["estimate"] <= 100
        for path, fields in (
            ("/imme", {"target_lang": "fr", "text_list": [TEXT]}),
            ("/kiss", {"to": "fr", "text": TEXT}),
            ("/language/translate/v2", {"q": TEXT, "target": "fr"}),
        ):
            assert free(run) in httpx.post(f"{server.url}{path}", json=fields).text
        upload = {"file": ("a.odt", odt())}
        sent = httpx.post(f"{server.url}/translate_file", data=BODY, files=upload)
        result = httpx.get(sent.json()["translatedFileUrl"]).content
        assert result.startswith(b"PK") and sent.json()["translatedFileUrl"].endswith("a_fr.odt")
        wrong = {"file": ("a.odt", b"%PDF-1.7")}
        refused = httpx.post(f"{server.url}/translate_file", data=BODY, files=wrong)
        assert refused.json() == {
            "error": "the file is not an ODT file: it is a PDF file; give it its own ending"
        }
    assert not any("torch" in line for line in server.other)


def test_a_packed_file_keeps_its_calibration(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = foveate.engine.packed.load(pack(run, tmp_path / "m.safetensors", calibrate=5))
    assert model.calibration is not None and model.calibration.sentences == 5
    [answer] = model.translate([TEXT])
    best = answer.outputs[0]
    assert 0 <= model.calibration.estimate(best.log_probability, 1 + len(best.ids)) <= 100
    assert run.calibration is None, "the file in the folder of the run has none"
    monkeypatch.delattr("foveate.run.packed_file")
    assert run.calibration is None, "its header is read once"
