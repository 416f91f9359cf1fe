"""The OpenAPI document, and a page that shows it without a script and without anything foreign."""

from __future__ import annotations

from html import escape
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from foveate.serve.asking import DetectBody, FileBody, PairsBody, StreamBody, TranslateBody
from foveate.serve.service import Service

REF = "#/components/schemas/{model}"
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
BODIES: tuple[type[BaseModel], ...] = (TranslateBody, DetectBody, StreamBody, PairsBody, FileBody)


class Error(BaseModel):
    """The form of every error."""

    error: str


WORDS = {
    400: "the request is not valid",
    403: "no valid key, or not from here",
    404: "there is no such thing",
    408: "the body did not come",
    413: "too much at once",
    429: "too often, or the queue is full: see Retry-After",
    500: "a fault of the server",
    503: "not now",
    504: "it took too long",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error, "description": words} for status, words in WORDS.items()
}
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><style>:root{{color-scheme:light dark}}
body{{font:16px/1.5 system-ui;max-width:48rem;margin:2rem auto;padding:0 1rem}}
code{{font-size:.95em}}table{{border-collapse:collapse;margin:.3rem 0 1rem}}
td{{padding:.1rem 1rem .1rem 0;vertical-align:top}}</style>
<h1>{title}</h1><p>As a document for programs: <a href="openapi.json">openapi.json</a></p>
{body}</html>
"""


def body_of(model: type[BaseModel], *kinds: str) -> dict[str, Any]:
    """The description of a body that may come in several encodings."""
    schema = {"schema": {"$ref": REF.format(model=model.__name__)}}
    content = {kind: schema for kind in kinds or (JSON, FORM, MULTIPART)}
    return {"requestBody": {"required": True, "content": content}}


def document(app: FastAPI) -> dict[str, Any]:
    """What FastAPI says of the routes, and the bodies that are read by hand."""
    found: dict[str, Any] = FastAPI.openapi(app)
    schemas = found["components"]["schemas"]
    for model in BODIES:
        form = model.model_json_schema(ref_template=REF)
        schemas |= form.pop("$defs", {})
        schemas[model.__name__] = form
        _name_choices(form["properties"], app.state.service)
    return found


def _name_choices(fields: dict[str, Any], service: Service) -> None:
    """Say in the description of a body which languages there are, and how many alternatives."""
    table = service.fleet.table()
    targets = list(dict.fromkeys(code for codes in table.values() for code in codes))
    if "source" in fields:
        auto = [] if "t" in fields else ["auto"]
        fields["source"]["enum"] = [*auto, *table]
        fields["target"]["enum"] = targets
    if "alternatives" in fields:
        fields["alternatives"]["maximum"] = service.limits.alternatives


def page(app: FastAPI) -> str:
    """The document for people: every route, what it does, and its fields."""
    tree = document(app)
    parts = []
    for path, methods in tree["paths"].items():
        for method, route in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2>")
            parts.append(f"<p>{escape(route.get('description', ''))}</p>")
            parts += _fields(tree, route.get("requestBody", {}).get("content", {}))
    return PAGE.format(title=escape(tree["info"]["title"]), body="\n".join(parts))


def _fields(tree: dict[str, Any], content: dict[str, Any]) -> list[str]:
    if not content:
        return []
    reference = next(iter(content.values()))["schema"]["$ref"]
    schema = tree["components"]["schemas"][reference.rpartition("/")[2]]
    required = schema.get("required", [])
    rows = []
    for name, field in schema["properties"].items():
        default = "needed" if name in required else f"default {field.get('default')!r}"
        said = (field.get("description", ""), default)
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in said)
        rows.append(f"<tr><td><code>{escape(name)}</code></td>{cells}</tr>")
    return ["<table>", *rows, "</table>", f"<p>Sent as {', '.join(map(escape, content))}.</p>"]
