"""Who may speak with the studio: its own pages on this machine, and whoever knows the token."""

import socket

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from foveate.config import ConfigError
from foveate.serve.common import LOOPBACK
from foveate.studio.api import StudioGuard, serve


async def told(request: Request) -> Response:
    return JSONResponse({"length": len(await request.body())})


def client(token: str | None = None, hosts: frozenset[str] | None = LOOPBACK) -> TestClient:
    paths = ("/", "/api/v1/runs/x/evaluation")
    app = Starlette(routes=[Route(path, told, methods=["GET", "POST"]) for path in paths])
    app.add_middleware(StudioGuard, token=token, hosts=hosts)
    return TestClient(app, base_url="http://127.0.0.1:8377")


OWN = ["127.0.0.1", "127.0.0.1:9", "localhost:8377", "[::1]:8377", "[::1]"]
OTHER = ["evil.example", "127.0.0.1.evil.example", "127.0.0.1.evil.example:80", "", "0.0.0.0"]


@pytest.mark.parametrize("host", [*OWN, *OTHER, "[::2]:1"])
def test_this_machine_is_called_by_its_names_and_no_others(host: str) -> None:
    answer = client().get("/", headers={"host": host})
    assert answer.status_code == (200 if host in OWN else 403)
    assert host in OWN or "unknown host name" in answer.json()["error"]


def test_pages_of_other_sites_are_refused() -> None:
    own = client()
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9", "https://localhost:8377"):
        answer = own.post("/", headers={"origin": origin})
        assert answer.status_code == 403 and "other sites" in answer.json()["error"]
    assert own.post("/", headers={"origin": "http://127.0.0.1:8377"}).status_code == 200
    assert own.post("/").status_code == 200, "programs send no origin"
    assert own.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    linked = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert own.get("/", headers=linked).status_code == 200, "a link may lead here"
    started = own.get("/api/v1/runs/x/evaluation", headers=linked)
    assert started.status_code == 403, "but not start a computation"


def test_nothing_may_be_loaded_from_elsewhere() -> None:
    headers = client().get("/").headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'self'" and policy["frame-ancestors"] == "'none'"
    assert "http" not in headers["content-security-policy"]
    answer = client().get("/", headers={"host": "evil"})
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_token_is_asked_for_and_kept_in_a_cookie() -> None:
    guarded = client("open-sesame", None)
    assert guarded.get("/").status_code == 401
    assert guarded.get("/?token=wrong").status_code == 401
    assert guarded.get("/", headers={"authorization": "Bearer open-sesame"}).status_code == 200
    cookie = guarded.get("/?token=open-sesame").headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    own, other = cookie.partition(";")[0], client("other", None).get("/?token=other")
    cookie = other.headers["set-cookie"].partition(";")[0]
    others = ["a[b]=1", "a/b={}", '"', "=x", 'a="b; c', cookie]
    for cookies in ([own], [*others, own], [own, *others]):
        for sent in ({"cookie": "; ".join(cookies)}, [("cookie", each) for each in cookies]):
            assert client("open-sesame", None).get("/", headers=sent).status_code == 200, cookies
    assert client("open-sesame", None).get("/", headers={"cookie": others[-1]}).status_code == 401


def test_another_host_demands_a_token() -> None:
    with pytest.raises(ConfigError, match="give a token"):
        serve([], host="0.0.0.0")


def test_this_machine_needs_no_token_under_either_protocol(monkeypatch, capsys) -> None:
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, sockets: sockets[0].close())
    for host, shown in (("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")):
        if host != "::1" or socket.has_ipv6:
            serve([], 0, host, browser=False)
            assert capsys.readouterr().out.startswith(f"studio: http://{shown}:")


def test_no_body_is_too_long_whatever_it_says_of_itself() -> None:
    most = 20 * 1024 * 1024
    answer = client().post("/", content=b"x" * (most + 1))
    assert answer.status_code == 413 and "at most" in answer.json()["error"]
    small = client().post("/", content=b"x" * 1000)
    assert small.json() == {"length": 1000}
    chunked = client().post("/", content=(b"x" * (most // 2) for _ in range(3)))
    assert chunked.status_code == 413
