"""OpenAI's route of chats: the last message of the user is translated."""

import time
import uuid
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from foveate.documents.languages import Direction
from foveate.serve.bodies import JSON, body_of, request_body
from foveate.serve.common import JsonObject, RequestError
from foveate.serve.translation import Client, Service, join, start
from foveate.serve.translation_schemas import Body, TranslateBody

PREFIX = "/v1/chat/"
router = APIRouter(tags=["OpenAI"])


class ChatPart(BaseModel):
    """A part of a message: its text, or something that is not translated."""

    type: str = "text"
    text: str = ""


class ChatMessage(BaseModel):
    """A message of a chat."""

    role: str
    content: str | list[ChatPart]

    @property
    def text(self) -> str:
        """Its text; parts without one are refused. Raises `RequestError` (400)."""
        if isinstance(self.content, str):
            return self.content
        if kinds := [part.type for part in self.content if part.type != "text"]:
            raise RequestError(400, f"messages: {kinds[0]} cannot be translated; send text alone")
        return "".join(part.text for part in self.content)


class ChatBody(Body):
    """A chat. What steers sampling, such as ``temperature``, changes nothing."""

    model: str = Field(description="the pair to translate, such as en-fr")
    messages: list[ChatMessage] = Field(description="the last one of the user is translated")
    stream: Literal[False] = False
    n: Literal[1] = 1


def error_of(error: RequestError) -> JsonObject:
    """Return the body of an error in OpenAI's form."""
    kinds = {403: "authentication_error", 429: "rate_limit_error"}
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    field = error.message.partition(": ")[0]
    own: JsonObject = {"message": error.message, "type": kinds.get(error.status, kind)}
    own |= {"param": field if field in ChatBody.model_fields else None, "code": None}
    return {"error": own}


@router.post("/v1/chat/completions", openapi_extra=body_of(ChatBody, JSON))
async def complete_chat(request: Request) -> Response:
    """Translate the last message of the user."""
    service, body, client = await request_body(request, ChatBody)
    direction = _direction(service, body.model)
    texts = [message.text for message in body.messages if message.role == "user"]
    if not texts:
        raise RequestError(400, "messages: none is of the role user; add the text to translate")
    work = _translated(service, texts[-1], direction, client)
    text, usage = await service.for_client(request, work)
    message: JsonObject = {"role": "assistant", "content": text}
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": "stop"}
    response: JsonObject = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.model,
        "choices": [choice],
        "usage": usage,
    }
    return JSONResponse(response)


def _direction(service: Service, model: str) -> Direction:
    """Return the direction of a pair's name. Raises `RequestError` (404) for an unknown one."""
    known = {f"{d.source}-{d.target}": d for _, d in service.pool.directions()}
    if model not in known:
        raise RequestError(404, f"model: {model!r} is not served; there are: {', '.join(known)}")
    return known[model]


async def _translated(
    service: Service, text: str, direction: Direction, client: Client
) -> tuple[str, JsonObject]:
    """Return the translation of a text, and its tokens and those of the translation."""
    body = TranslateBody(q=text, source=direction.source, target=direction.target)
    [pending] = await start(service, [text], body, client)
    await join(service, [pending], client)
    read = written = 0
    if pending.route.run is not None:
        sides = service.pool.run(pending.route.run).sides("translate")
        ids = sides.source_tokenizer.encode_ids([answer.source for answer in pending.done])
        read = sum(1 + len(each) for each in ids)
        written = sum(1 + len(answer.outputs[0].ids) for answer in pending.done if answer.outputs)
    usage: JsonObject = {"prompt_tokens": read, "completion_tokens": written}
    return pending.versions[0], usage | {"total_tokens": read + written}
