"""Files: sent here, translated with their form kept, fetched by their new name."""

from __future__ import annotations

import mimetypes
from functools import partial
from pathlib import PurePath
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from foveate.config import ConfigError
from foveate.documents.documents import ENDINGS, Choices, read_document
from foveate.serve.asking import FileBody, Upload, parsed
from foveate.serve.errors import Refused
from foveate.serve.openapi import ERRORS, MULTIPART, body_of
from foveate.serve.service import Here, Service
from foveate.serve.translating import AUTO, Visitor, begin, check_size, find_ways, joined

router = APIRouter(responses=ERRORS, tags=["files"])
SAMPLE = 4096  # characters by which the language of a file is told


class TranslatedFile(BaseModel):
    """Where the translated file can be fetched."""

    translatedFileUrl: str


@router.post(
    "/translate_file", response_model=TranslatedFile, openapi_extra=body_of(FileBody, MULTIPART)
)
async def translate_file(request: Request, here: Here) -> Response:
    """Translate a file; its format is told by its ending."""
    visit = await here.door.admit(request)
    upload = visit.fields.get("file")
    if not isinstance(upload, Upload):
        raise Refused(400, "invalid request: file is missing: send a form with a file")
    ask = parsed(FileBody, visit.fields | {"file": ""})
    if (ending := PurePath(upload.name).suffix.lower()) not in ENDINGS:
        known = ", ".join(ENDINGS)
        raise Refused(400, f"file: {ending or 'no ending'} is not supported; there are: {known}")
    request.state.record.add(bytes=len(upload.data))
    who = Visitor(visit.client, request.state.record)
    try:
        work = _translated(here, ENDINGS[ending], upload.data, ask, who)
        made = await here.for_client(request, work)
    except ConfigError as error:
        raise Refused(400, str(error)) from None
    key = here.kept.put(made, upload.name, ask.target)
    return JSONResponse({"translatedFileUrl": f"{request.base_url}download_file/{key}"})


async def _translated(here: Service, kind: str, data: bytes, ask: FileBody, who: Visitor) -> bytes:
    """The document with a translation in place of each passage.

    Raises ``ConfigError`` that says what is wrong with the document.
    """
    source = None if ask.source == AUTO else ask.source
    choices = Choices(here.rules, ask.target, source=source)
    document = await here.in_turn(partial(read_document, kind, data, choices, "the file"))
    sentences = [text for passage in document.passages for text in passage.sentences]
    check_size(here, sentences, who, here.limits.file_characters, len(sentences))
    sample = " ".join(sentences)[:SAMPLE]
    [way] = await find_ways(here, ask.source, ask.target, [sample])
    if way.place is None:
        raise Refused(400, f"the file is in {ask.target} already")
    ways = [way] * len(document.passages)
    found = await joined(here, begin(here, document.passages, ways, who), who)
    texts = [one.versions[0] for one in found]
    return await here.in_turn(partial(document.written, texts))


@router.get(
    "/download_file/{name}",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "the file"}},
)
async def download_file(name: str, here: Here) -> Response:
    """Fetch a translated file, while it is kept."""
    data = here.kept.get(name)
    if data is None:
        raise Refused(404, "there is no such file, or it was kept too long")
    shown = name.partition(".")[2]
    kind = mimetypes.guess_type(shown)[0] or "application/octet-stream"
    headers: dict[str, Any] = {"Cache-Control": "no-store"}
    ascii_name = shown.encode("ascii", "replace").decode().replace("?", "_")
    headers["Content-Disposition"] = f'attachment; filename="{ascii_name}"'
    return Response(data, media_type=kind, headers=headers)
