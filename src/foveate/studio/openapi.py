"""The OpenAPI document, with the types of events, from which the page's types are generated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from pydantic import TypeAdapter

from foveate.look.drawing import Part
from foveate.studio.evaluating import Evaluated, Progress
from foveate.studio.told import BeamStep, DrawnDone, Failed, LabelDone, Ping, Start, TextDone, Token
from foveate.studio.trainings import TrainingEvent

REF = "#/components/schemas/{model}"
EVENTS: dict[str, Sequence[type[Part]]] = {
    "AnswerEvent": (Start, Token, BeamStep, TextDone, LabelDone, DrawnDone, Failed, Ping),
    "EvaluationEvent": (Progress, Evaluated, Failed, Ping),
    "TrainingEvents": (TrainingEvent,),
}


def document(app: FastAPI) -> dict[str, Any]:
    """What FastAPI says of the application, and the events that its streams send."""
    found: dict[str, Any] = FastAPI.openapi(app)
    schemas = found["components"]["schemas"]
    for name, models in EVENTS.items():
        for model in models:
            form = TypeAdapter(model).json_schema(ref_template=REF, mode="serialization")
            schemas |= form.pop("$defs", {})
            schemas[model.__name__] = form
        refs = [{"$ref": REF.format(model=model.__name__)} for model in models]
        schemas[name] = {"oneOf": refs, "title": name}
    return found


def text(app: FastAPI) -> str:
    """The document as JSON, the same in every run."""
    return json.dumps(document(app), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
