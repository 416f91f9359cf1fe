"""OpenAI's route of chats: the last message of the user is translated."""

import time
import uuid
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from foveate.serve.bodies import JSON, body_of, request_body
from foveate.serve.common import JsonObject, RequestError
from foveate.serve.translation import Client, Service, join, start
from foveate.serve.translation_schemas import Body, TranslateBody

PREFIX = "/v1/chat/"
ERRORS = {403: "authentication_error", 429: "rate_limit_error"}  # OpenAI's names, by status
router = APIRouter(tags=["OpenAI"])


class ChatMessage(BaseModel):
    """A message of a chat."""

    role: str
    content: str


class ChatBody(Body):
    """A chat. What steers sampling, such as ``temperature``, changes nothing."""

    model: str = Field(description="the pair to translate, such as en-fr")
    messages: list[ChatMessage] = Field(description="the last one of the user is translated")
    stream: Literal[False] = False
    n: Literal[1] = 1


def error_of(error: RequestError) -> JsonObject:
    """Return the body of an error in OpenAI's form."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    field = error.message.partition(": ")[0]
    own: JsonObject = {"message": error.message, "type": ERRORS.get(error.status, kind)}
    own |= {"param": field if field in ChatBody.model_fields else None, "code": None}
    return {"error": own}


@router.post("/v1/chat/completions", openapi_extra=body_of(ChatBody, JSON))
async def complete_chat(request: Request) -> Response:
    """Translate the last message of the user."""
    service, body, client = await request_body(request, ChatBody)
    pairs = {f"{d.source}-{d.target}": d for _, d in service.pool.directions()}
    texts = [message.content for message in body.messages if message.role == "user"]
    if body.model not in pairs:
        known = ", ".join(pairs)
        raise RequestError(404, f"model: {body.model!r} is not served; there are: {known}")
    if not texts:
        raise RequestError(400, "messages: none is of the role user; add the text to translate")
    source, target = pairs[body.model].source, pairs[body.model].target
    work = _completed(service, TranslateBody(q=texts[-1], source=source, target=target), client)
    head: JsonObject = {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": "chat.completion"}
    head |= {"created": int(time.time()), "model": body.model}
    return JSONResponse(head | await service.for_client(request, work))


async def _completed(service: Service, body: TranslateBody, client: Client) -> JsonObject:
    """Return the translation as a choice, and its tokens and those of the text."""
    [pending] = await start(service, [str(body.q)], body, client)
    await join(service, [pending], client)
    assert pending.route.run is not None
    tokenizer = service.pool.run(pending.route.run).sides("translate").source_tokenizer
    ids = tokenizer.encode_ids([answer.source for answer in pending.done])
    read = sum(1 + len(each) for each in ids)
    written = sum(1 + len(answer.outputs[0].ids) for answer in pending.done if answer.outputs)
    message: JsonObject = {"role": "assistant", "content": pending.versions[0]}
    usage: JsonObject = {"prompt_tokens": read, "completion_tokens": written}
    return {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage | {"total_tokens": read + written},
    }
