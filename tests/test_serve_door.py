"""Keys, rates and sizes: who is let in, how often, with how much."""

import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.config import ConfigError
from foveate.run import Run
from foveate.serve.bodies import anonymous, network
from foveate.serve.common import listen
from foveate.serve.keys import KeyFile, TokenBuckets
from foveate.serve.translation_schemas import Limits
from serve_tools import sent, served

BODY = {"q": "the dog runs", "source": "en", "target": "fr"}


def test_a_key_opens_by_every_way_and_no_other_does(run: Run, tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    key = file.add("ann")
    app = served(run.path, keys=file)
    bearer = {"Authorization": f"Bearer {key}"}
    good: list[dict[str, Any]] = [
        {"json": BODY | {"api_key": key}},
        {"data": BODY | {"api_key": key}},
        {"data": BODY, "params": {"api_key": key}},
        {"json": BODY, "headers": bearer},
        {"method": "GET", "url": "/metrics", "headers": bearer},
        {"method": "GET", "url": "/languages"},
        {"method": "GET", "url": "/health"},
        {"json": BODY, "headers": {"authorization": f"bearer {key}"}},
    ]
    for scheme in ("Basic dXNlcjpwYXNz", "Negotiate abc", "Digest a=b", "token", ""):
        good += [good[n] | {"headers": {"Authorization": scheme}} for n in range(3)]
    assert [item.status_code for item in sent(app, *good)] == [200] * len(good)
    bad: list[dict[str, Any]] = [
        {"json": BODY},
        {"json": BODY | {"api_key": key + "x"}},
        {"json": BODY | {"api_key": ""}, "headers": {"Authorization": "Bearer "}},
        {"method": "GET", "url": "/metrics"},
        {"url": "/detect", "json": {"q": "a"}},
    ]
    for answer in sent(app, *bad):
        assert answer.status_code == 403 and list(answer.json()) == ["error"]
    file.remove("ann")
    assert sent(app, good[0])[0].status_code == 403, "a key that is removed is gone at once"
    file.path.write_text("torn")
    [result] = sent(app, good[0])
    assert result.status_code == 503 and str(tmp_path) not in result.text


def test_a_wrong_key_is_refused_before_the_body_is_read(run, tmp_path) -> None:
    file, asked = KeyFile(tmp_path / "keys"), list[int]()
    bearer = {"Authorization": f"Bearer {file.add('ann')}"}
    app = served(run.path, Limits(unknown=100), keys=file)

    async def content() -> AsyncIterator[bytes]:
        asked.append(1)
        yield json.dumps(BODY | {"q": "the dog runs " * 20}).encode()

    def status(**headers: str) -> int:
        headers |= {"content-type": "application/json"}
        return sent(app, {"content": content(), "headers": headers})[0].status_code

    assert status(Authorization="Bearer fov_wrong") == 403 and not asked
    assert status() == 503, "more bytes than bodies without a key may have"
    assert status(**bearer) == 200
    assert sent(app, {"json": BODY})[0].status_code == 403, "what was refused is counted no more"


def test_the_file_does_not_know_the_key(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    key = file.add("ann", rate=3)
    text = file.path.read_text("utf-8")
    assert key not in text and key[8:] not in text and len(key) > 40
    assert file.path.stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError, match="has a key ann already"):
        file.add("ann")
    with pytest.raises(ConfigError, match="no key bob; there are: ann"):
        file.remove("bob")
    tree = json.loads(text)
    for odd in (
        tree | {"ratee": 3},
        tree | {"rate": "many"},
        tree | {"sha256": "x"},
        {},
        [tree],
        1,
    ):
        file.path.write_text(f"{text}{json.dumps(odd)}\n")
        with pytest.raises(ConfigError, match=r"keys:2 is not a key"):
            KeyFile(file.path)
    file.path.write_text("nonsense\n")
    with pytest.raises(ConfigError, match=r"keys:1 is not a key"):
        KeyFile(file.path)


def test_requests_above_the_rate_are_told_when_to_retry(run: Run, tmp_path: Path) -> None:
    result = sent(served(run.path, Limits(rate=2)), *[{"json": BODY}] * 4)
    assert [item.status_code for item in result] == [200, 200, 429, 429]
    assert 1 <= int(result[2].headers["retry-after"]) <= 30
    file = KeyFile(tmp_path / "keys")
    few, many = ({"json": BODY | {"api_key": file.add(n, r)}} for n, r in (("a", 1), ("b", 0)))
    app = served(run.path, Limits(rate=2), keys=file)
    codes = [item.status_code for item in sent(app, few, few, many, many, many, {"json": BODY})]
    assert codes == [200, 429, 200, 200, 200, 403], "each by its own rate"


@pytest.mark.parametrize("field", ["q", "source", "api_key"])
def test_half_a_character_is_refused_in_every_field(run: Run, field: str) -> None:
    for half in (b'"\\ud800"', b'"\xed\xa0\x80"'):
        content = json.dumps(BODY | {field: "HALF"}).encode().replace(b'"HALF"', half)
        headers = {"content-type": "application/json"}
        [answer] = sent(served(run.path), {"content": content, "headers": headers})
        assert answer.status_code == 400 and "half a character" in answer.json()["error"]


@pytest.mark.parametrize(
    ("q", "status"), [(["a"] * 3, 200), (["a"] * 4, 413), ("a" * 50, 200), ("a" * 51, 413),
                      ("a" * 3000, 413)],
)  # fmt: skip
def test_too_much_at_once_is_refused(run: Run, q: Any, status: int) -> None:
    app = served(run.path, Limits(characters=50, items=3, body=2000), queue=60)
    [answer] = sent(app, {"json": BODY | {"q": q}})
    assert answer.status_code == status
    assert (list(answer.json()) == ["error"]) == (status == 413)


def test_a_full_queue_refuses_and_the_rest_is_answered(run: Run) -> None:
    app = served(run.path, queue=200)
    many = {"json": BODY | {"q": ["the dog runs"] * 10}}
    result = sent(app, *[many] * 12, at_once=True)
    assert {item.status_code for item in result} == {200, 429}
    for item in result:
        if item.status_code == 200:
            assert len(item.json()["translatedText"]) == 10
        else:
            assert int(item.headers["retry-after"]) >= 1 and "full" in item.json()["error"]
    alone = sent(app, {"json": BODY | {"q": ["the dog runs"] * 30}})
    assert alone[0].status_code == 200, "what is alone has the queue to itself"


def test_what_takes_too_long_is_given_up(run: Run) -> None:
    app = served(run.path, Limits(seconds=0.05), max_delay=2.0)
    [result] = sent(app, {"json": BODY})
    assert result.status_code == 504 and list(result.json()) == ["error"]


@given(st.lists(st.floats(0, 30), max_size=60), st.sampled_from([1.0, 6.0, 60.0]))
def test_a_bucket_never_gives_more_than_its_rate(gaps: list[float], rate: float) -> None:
    now = [0.0]
    buckets = TokenBuckets(lambda: now[0])
    inputs: list[float] = []
    for gap in gaps:
        now[0] += gap
        if wait := buckets.take("a", rate):
            now[0] += wait + 1e-6
            assert wait > 0 and buckets.take("a", rate) == 0, "who waits as told gets in"
        inputs.append(now[0])
    for first, start in enumerate(inputs):
        for last, end in enumerate(inputs[first:], 1):
            assert last <= rate + rate / 60 * (end - start) + 1e-3


def test_one_household_is_one_client() -> None:
    same: Callable[[str, str], bool] = lambda a, b: network(a) == network(b)  # noqa: E731
    assert same("2001:db8::1", "2001:db8::ffff:1") and not same("2001:db8::1", "2001:db8:0:1::1")
    assert not same("192.0.2.1", "192.0.2.2") and network("") == ""
    assert same("::ffff:192.0.2.1", "192.0.2.1") and not same("::ffff:c000:201", "192.0.2.2")
    assert anonymous("address:192.0.2.1") == anonymous("address:192.0.2.1") != anonymous("x")


def test_a_language_stays_itself_only_where_it_is_served(run: Run) -> None:
    app = served(run.path)
    for code, status in (("en", 200), ("fr", 200), ("de", 400)):
        [answer] = sent(app, {"json": BODY | {"source": code, "target": code}})
        assert answer.status_code == status, code
        assert status == 400 or answer.json()["translatedText"] == BODY["q"]
    assert answer.json()["error"] == "target: de is not supported; there are: fr"


def test_the_host_is_checked_and_figures_do_not_grow_with_what_clients_invent(run: Run) -> None:
    app = served(run.path)
    result = sent(app, *({"json": BODY, "headers": {"host": h}} for h in ("evil", "", "[::1]:80")))
    assert [item.status_code for item in result] == [403, 403, 200]
    assert json.loads(result[0].text)["error"].startswith("this server")
    [foreign] = sent(app, {"json": BODY, "headers": {"origin": "http://evil.example"}})
    assert foreign.status_code == 403 and foreign.json()["error"].startswith("pages of other sites")
    before = app.state.service.metrics.text().decode().count("foveate_requests_total{")
    sent(app, *({"method": f"X{n}", "url": f"/{n}", "json": None} for n in range(20)))
    text = app.state.service.metrics.text().decode()
    assert text.count("foveate_requests_total{") == before + 1
    [page] = sent(app, {"method": "GET", "url": "/"})
    assert page.status_code == 200 and page.json()["info"]["title"] == "foveate serve"
    source = page.json()["components"]["schemas"]["TranslateBody"]["properties"]["source"]
    assert source["enum"] == ["auto", "en"]


# ------------------------------ Where a program can be reached
def test_early_connections_wait_and_a_taken_port_is_skipped() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        with listen("127.0.0.1", port, 20) as second:
            assert port < second.getsockname()[1] < port + 20
