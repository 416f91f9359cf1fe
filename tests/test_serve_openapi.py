"""Requests made from the OpenAPI document: never a fault, and every answer as it is described."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import own_loop
from foveate.run import Run
from serve_tools import client_of, served

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis.specs.openapi.checks import positive_data_acceptance

ROUTES = [
    ("POST", path)
    for path in ("/translate", "/detect", "/v1/score", "/v1/align", "/v1/stream", "/translate_file")
]
ROUTES += [("GET", path) for path in ("/languages", "/frontend/settings", "/health", "/ready")]
ROUTES += [("GET", "/download_file/{name}"), ("GET", "/metrics")]


def test_every_route_is_in_the_document(run: Run) -> None:
    tree = served(run.path).openapi()
    listed = [(m.upper(), path) for path, methods in tree["paths"].items() for m in methods]
    assert sorted(listed) == sorted(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route[1])
def test_generated_requests_get_the_answers_that_are_described(run, route) -> None:
    app = served(run.path, hosts=None)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    operation = schema[route[1]][route[0]]

    @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
    @schemathesis_given(operation)  # type: ignore[untyped-decorator]
    def check(case: Any) -> None:
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    check()


def schemathesis_given(operation: Any) -> Any:
    from hypothesis import given

    return given(case=operation.as_strategy())


def test_the_document_needs_nothing_foreign(run: Run) -> None:
    async def page() -> str:
        async with client_of(served(run.path)) as client:
            return (await client.get("/docs")).text

    text = own_loop.run(page())
    assert "/translate" in text and "//" not in text.replace("</", "")
