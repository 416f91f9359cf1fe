"""The studio's API, its page and its program: runs, their answers and views, training runs."""

import asyncio
import contextlib
import hashlib
import hmac
import secrets
import sys
import threading
import time
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from os import stat_result
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.staticfiles import PathLike, StaticFiles
from starlette.types import ASGIApp, Scope

from foveate import __version__
from foveate.config import ConfigError
from foveate.errors import not_built
from foveate.look.draw.film import FilmDrawing
from foveate.look.draw.parts import DrawingPart
from foveate.look.views import VIEWS, file_fields
from foveate.look.views.demos import DEMOS
from foveate.look.views.options import Question
from foveate.look.views.training import film
from foveate.serve.common import (
    LOOPBACK,
    SCHEMA_REF,
    BytesInFlight,
    Error,
    Guard,
    RequestError,
    Responses,
    address,
    listen,
    new_application,
    not_found,
    openapi_document,
    refusal,
)
from foveate.studio import comparisons, descriptions, lectures, trainings
from foveate.studio.evaluation import Evaluated, ExampleList, examples
from foveate.studio.schemas import (
    AnswerRequest,
    AnswerStart,
    BeamStep,
    CompleteAnswer,
    Drawings,
    DrawnDone,
    Failed,
    LabelDone,
    Ping,
    Progress,
    StudioResponse,
    TextDone,
    Token,
    ViewRequest,
)
from foveate.studio.state import StudioState, T
from foveate.train import journal

STATIC = Path(__file__).parent / "static"
BUILT = "index.html"
EVENT_STREAM = "text/event-stream"
EVENT_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
NO_PAGE = not_built("the studio's page")
MISSING = f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>foveate studio</title>
<meta name="viewport" content="width=device-width"><style>:root{{color-scheme:light dark}}
body{{font:16px/1.6 system-ui;max-width:40rem;margin:15vh auto;padding:0 1rem}}</style>
<p>{NO_PAGE}. The API answers at <a href="/api/v1/runs">/api/v1/runs</a>.</p></html>
"""
MOST_BYTES = 20 * 2**20  # of a request's body
IN_FLIGHT = 256 * 2**20  # bytes of all bodies that are read or answered
MOST_CHARACTERS = 10_000  # of a text
POLICY = (
    "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self' blob:; "
    "img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
PAUSE = 15.0  # seconds without an event after which a ping is sent
POLL = 0.5  # seconds between two readings of a log
PORTS = 20  # tried if the first is taken
DRAIN = 2  # seconds for open streams when the program ends
EVENTS: dict[str, Sequence[type[StudioResponse]]] = {  # of each stream
    "AnswerEvent": (
        AnswerStart, Token, BeamStep, TextDone, LabelDone, DrawnDone, Failed, Ping,
    ),
    "EvaluationEvent": (Progress, Evaluated, Failed, Ping),
    "TrainingEvents": (trainings.TrainingEvent,),
}  # fmt: skip
ERRORS: Responses = {status: {"model": Error} for status in (404, 413, 422, 429, 500)}


def sent(event: DrawingPart, position: str = "") -> str:
    """Return a server-sent event; a reader can resume after its ``position``."""
    name, data = getattr(event, "event", "message"), event.model_dump_json(by_alias=True)
    return (f"id: {position}\n" if position else "") + f"event: {name}\ndata: {data}\n\n"


def event_response(events: AsyncIterator[str]) -> StreamingResponse:
    """Return the response that sends events as they come."""
    return StreamingResponse(events, media_type=EVENT_STREAM, headers=EVENT_HEADERS)


async def _stream(events: AsyncIterator[DrawingPart]) -> AsyncIterator[str]:
    """Yield events in the form sent; an error is the last of them."""
    try:
        async for event in events:
            yield sent(event)
    except Exception as error:
        yield sent(Failed(error=refusal(error, public=False).message))


def _streamed(schema: str, description: str) -> Responses:
    """Return the OpenAPI description of a response that may be a stream of events."""
    content = {EVENT_STREAM: {"schema": {"$ref": SCHEMA_REF.format(model=schema)}}}
    return {200: {"description": description, "content": content}}


def _wants_events(request: Request) -> bool:
    return EVENT_STREAM in request.headers.get("accept", "")


class StudioGuard(Guard):
    """The guard of the studio: only its own pages may use it, with its token if it has one.

    Responses of the studio may load nothing from other sites.
    """

    public = False
    wrong_host = "unknown host name: open the studio at 127.0.0.1"
    wrong_origin = "pages of other sites may not use the studio"
    headers = SECURITY_HEADERS

    def __init__(
        self, app: ASGIApp, token: str | None = None, hosts: Iterable[str] | None = LOOPBACK
    ) -> None:
        super().__init__(app, hosts)
        self.token, self.in_flight = token, BytesInFlight(IN_FLIGHT)
        self.cookie = "foveate-" + hashlib.sha256((token or "").encode()).hexdigest()[:8]

    async def check(self, scope: Scope, headers: Headers) -> tuple[int, BytesInFlight]:
        """Check the sender: a link may open the page, but not start a computation."""
        page = headers.get("sec-fetch-mode") == "navigate" and scope["path"] == "/"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not page:
            raise RequestError(403, self.wrong_origin)
        if self.token is not None:
            bearer = headers.get("authorization", "").removeprefix("Bearer ")
            tokens = bearer, _query_token(scope), Request(scope).cookies.get(self.cookie, "")
            if not any(hmac.compare_digest(t.encode(), self.token.encode()) for t in tokens):
                ask = "open the address that `foveate studio` printed"
                raise RequestError(401, f"this studio requires a token: {ask}")
        return MOST_BYTES, self.in_flight

    def headers_of(self, scope: Scope) -> Mapping[str, str]:
        """Return the headers, with a cookie for the token if it is in the query string."""
        if self.token is None or _query_token(scope) != self.token:
            return self.headers
        cookie = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
        return {**self.headers, "Set-Cookie": cookie}


def _query_token(scope: Scope) -> str:
    return parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]


def _state(request: Request) -> StudioState:
    return request.app.state.studio


async def compute(request: Request, work: Callable[[], T]) -> T:
    """Return the result of a computation, which is cancelled if the client leaves."""
    return await _state(request).start(lambda send: work()).result(request.is_disconnected)


State = Annotated[StudioState, Depends(_state)]
router = APIRouter(prefix="/api/v1", responses=ERRORS)


def _check_length(*texts: str | None) -> None:
    """Raise `RequestError` for a text that is too long for a model and a page."""
    for text in texts:
        if text is not None and len(text) > MOST_CHARACTERS:
            most = f"the studio reads at most {MOST_CHARACTERS:,}; use the command line"
            raise RequestError(413, f"a text of {len(text):,} characters: {most}")


def _check_view(view: str, question: Question) -> None:
    """Raise `RequestError` for an unknown view, or a question with long texts."""
    _check_length(question.text, question.target)
    if view not in VIEWS:
        raise not_found("view", view, VIEWS)


@router.get("/runs")
def runs(state: State) -> descriptions.RunList:
    """All runs, by their configs and logs alone."""
    return descriptions.run_list(state.runs)


@router.get("/runs/{run}")
async def run(run: str, state: State, request: Request) -> descriptions.RunDetail:
    """A run with its abilities; it is loaded for it."""
    stored = state.runs.find(run)
    return await compute(request, lambda: descriptions.detail(stored, state.runs.load(stored)))


@router.get("/runs/{run}/examples")
async def run_examples(run: str, state: State, request: Request, most: int = 12) -> ExampleList:
    """Examples from the run's own test data."""
    most = min(most, 100)
    return await compute(request, lambda: examples(state.runs.run(run), most))


@router.post(
    "/runs/{run}/answer",
    response_model=CompleteAnswer,
    responses=_streamed("AnswerEvent", "all events at once, or one by one"),
)
async def answer(run: str, ask: AnswerRequest, state: State, request: Request) -> object:
    """The answer of a run: as events where ``text/event-stream`` is accepted, else all together.

    The computation stops where the reader leaves.
    """
    _check_length(ask.text, ask.beginning)
    state.runs.find(run)
    events = state.start(lambda send: state.answer(run, ask, send)).events(PAUSE, Ping())
    if _wants_events(request):
        return event_response(_stream(events))
    start, beam, done = None, [], None
    async for event in events:
        if isinstance(event, AnswerStart):
            start = event
        elif isinstance(event, BeamStep):
            beam.append(event)
        elif not isinstance(event, Token | Ping):
            done = event
        if await request.is_disconnected():
            raise ClientDisconnect
    return CompleteAnswer(start=start, beam=beam, done=done)


@router.get(
    "/runs/{run}/evaluation",
    response_model=Evaluated,
    responses=_streamed("EvaluationEvent", "at once, or as an event after progress events"),
)
async def evaluation(
    run: str,
    state: State,
    request: Request,
    split: Literal["train", "valid", "test"] = "test",
    most: Annotated[int, Query(ge=1, le=5000)] = 200,
) -> object:
    """Scores of examples from all over a split; they are computed once.

    Where ``text/event-stream`` is accepted, events of progress come before them.
    """
    state.runs.find(run)
    job = state.start(lambda send: state.evaluate(run, split, most, send))
    if _wants_events(request):
        return event_response(_stream(job.events(PAUSE, Ping())))
    return await job.result(request.is_disconnected)


@router.post("/runs/{run}/views/{view}")
async def view(run: str, view: str, question: Question, state: State, request: Request) -> Drawings:
    """A view of a run."""
    return await compare(view, ViewRequest(runs=[run], question=question), state, request)


@router.post("/views/{view}")
async def compare(view: str, ask: ViewRequest, state: State, request: Request) -> Drawings:
    """A view of several runs in one picture, or of one with heads silenced."""
    _check_view(view, ask.question)
    for name in ask.runs:
        state.runs.find(name)
    return await compute(request, lambda: state.view(view, ask.runs, ask.question, ask.silenced))


@router.get(
    "/tensors/{tensor}",
    response_class=Response,
    responses={
        200: {"content": {"application/octet-stream": {}}, "description": "the bytes of an array"}
    },
)
def tensor(tensor: str, state: State) -> Response:
    """The bytes of an array, gzipped."""
    packed = state.arrays.get(tensor)
    if packed is None:
        raise RequestError(404, f"tensor {tensor!r} is not in memory: draw the view again")
    headers = {"Content-Encoding": "gzip", "Cache-Control": "private, max-age=3600, immutable"}
    return Response(packed, media_type="application/octet-stream", headers=headers)


@router.get("/trainings", name="trainings")
def training_list(state: State) -> trainings.TrainingList:
    """The progress of every training."""
    infos = [training_info(name, state) for name in state.runs.names()]
    return trainings.TrainingList(trainings=infos)


@router.get("/trainings/{name}")
def training_info(name: str, state: State) -> trainings.TrainingInfo:
    """The progress of a training."""
    stored, steps = state.runs.find(name), None
    with contextlib.suppress(ConfigError):  # its log can be shown all the same
        steps = stored.config.train.max_steps
    return trainings.training(name, stored.folder, steps, journal.read(stored.folder))


@router.get("/trainings/{name}/series")
def training_series(
    name: str, state: State, max_points: Annotated[int, Query(ge=3, le=20_000)] = 2000
) -> trainings.SeriesOf:
    """All curves, with fewer points of the same look."""
    return trainings.series(journal.read(state.runs.find(name).folder), max_points)


@router.get("/trainings/{name}/samples")
def training_samples(name: str, state: State) -> trainings.SamplesOf:
    """The outputs for the same examples at every validation."""
    return trainings.samples(journal.read(state.runs.find(name).folder))


@router.get("/trainings/{name}/snapshots")
def training_snapshots(name: str, state: State, after: int = -1) -> FilmDrawing:
    """Attention to one example at the steps after one, without frames where none was kept."""
    return film(state.runs.find(name).folder, after)


@router.get(
    "/trainings/{name}/events",
    response_class=StreamingResponse,
    responses=_streamed("TrainingEvents", "the lines of the log as they are written"),
)
async def training_events(
    name: str, state: State, last_event_id: Annotated[str, Header()] = ""
) -> StreamingResponse:
    """New lines of a log, from a position (``Last-Event-ID``) on."""
    path = state.runs.find(name).folder / journal.LOG
    return event_response(_new_lines(trainings.LogTail(path, last_event_id)))


async def _new_lines(tail: trainings.LogTail) -> AsyncIterator[str]:
    last = float("-inf")
    while True:
        if time.monotonic() - last > PAUSE:
            last = time.monotonic()
            yield sent(trainings.TrainingEvent(event="ping", step=tail.position[0]))
        for position, line in tail.news():
            last = time.monotonic()
            yield sent(trainings.event(line), position)
        await asyncio.sleep(POLL)


@router.get("/lectures")
def lecture_list(state: State) -> lectures.LectureList:
    """All lectures with their steps, and the commands that make the runs they look into."""
    return lectures.lecture_list(state.lectures)


@router.post("/lectures")
def save_lecture(lecture: dict[str, object], state: State) -> lectures.Lecture:
    """Save a lecture in the folder of the studio; it gets a name where it has none."""
    return lectures.save(lectures.checked(lecture), state.lectures)


@router.post("/lectures/read")
def read_lecture(file: lectures.LectureFile) -> lectures.Lecture:
    """The lecture of a file; an error names its step and key."""
    return lectures.read(file)


@router.post("/lectures/written")
def write_lecture(lecture: dict[str, object]) -> lectures.LectureFile:
    """The file of a lecture; an error names the step and the key, or the command."""
    return lectures.written(lectures.checked(lecture))


@router.get("/lectures/drawings")
async def lecture_drawings(
    command: str, state: State, request: Request, response: Response
) -> Drawings:
    """Draw the command of a step; browsers keep it for a minute, for a second window."""
    _check_length(command)
    view, named, options = lectures.parsed(command)
    response.headers["Cache-Control"] = "private, max-age=60"
    if isinstance(options, Question):
        _check_view(view, options)
        runs = lectures.present(named, state.runs.stored)
        return await compute(request, lambda: state.view(view, runs, options))
    return await demo(view, options.model_dump(exclude_unset=True), state, request)


@router.get("/demos")
def demo_list() -> descriptions.DemoList:
    """All demos with their options."""
    return descriptions.demo_list()


@router.post("/demos/{name}")
async def demo(name: str, options: dict[str, object], state: State, request: Request) -> Drawings:
    """A demo with some options, those of ``foveate demo``."""
    if name not in DEMOS:
        raise not_found("demo", name, DEMOS)
    if named := sorted(file_fields(DEMOS[name].options).intersection(options)):
        raise RequestError(422, f"{named[0]}: a page cannot name files; use the command line")
    _check_length(*map(str, options.values()))
    return await compute(
        request, lambda: state.sent(lambda: DEMOS[name].draw(options).browser_drawings())
    )


@router.get("/comparisons")
def comparison_list(state: State) -> comparisons.ComparisonList:
    """The comparisons that ``foveate compare`` has written in and beside the folders of runs."""
    return comparisons.comparison_list(state.paths)


@router.get("/comparisons/{name}/{number}")
async def comparison(name: str, number: int, state: State, request: Request) -> Drawings:
    """A chapter of a comparison, counted from 1."""
    return await compute(
        request, lambda: state.sent(lambda: comparisons.chapter(state.paths, name, number))
    )


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document with event types, from which the page's types are generated."""
    models = [model for of_stream in EVENTS.values() for model in of_stream]
    tree = openapi_document(app, models, "serialization")
    for name, of_stream in EVENTS.items():
        refs = [{"$ref": SCHEMA_REF.format(model=model.__name__)} for model in of_stream]
        tree["components"]["schemas"][name] = {"oneOf": refs, "title": name}
    return tree


class Assets(StaticFiles):
    """The files of the page; names under ``assets`` contain a hash of the fixed content."""

    def file_response(
        self, full_path: PathLike, stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """Return the response of `StaticFiles`, with how long a browser may cache it."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        hashed = Path(full_path).parent.name == "assets"
        response.headers["Cache-Control"] = "max-age=31536000, immutable" if hashed else "no-cache"
        return response


def studio_application(
    runs: Sequence[Path],
    token: str | None = None,
    hosts: Iterable[str] | None = LOOPBACK,
    waiting: int = 32,
    static: Path = STATIC,
    lectures: Path | None = None,
) -> FastAPI:
    """Return the studio of some runs, or of folders of runs, as an ASGI application.

    The user's own lectures are in the folder ``lectures``.

    Every request needs ``token`` if it is set; ``hosts`` are the names under which the studio
    may be reached (None: any). One computation runs at a time and at most ``waiting`` wait.
    Raises ``ConfigError`` if a path contains no run.
    """
    state = StudioState(runs, waiting, lectures)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        state.queue.close(0)

    app = new_application("foveate studio", __version__, lifespan, document, "/api/v1/openapi.json")
    app.state.studio = state
    app.include_router(router)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        if (static / BUILT).is_file():
            return FileResponse(static / BUILT, headers={"Cache-Control": "no-cache"})
        return HTMLResponse(MISSING, 503)

    if static.is_dir():
        app.mount("/", GZipMiddleware(Assets(directory=static)), "static")
    app.add_middleware(StudioGuard, token=token, hosts=hosts)
    return app


def serve(
    runs: Sequence[Path],
    port: int = 8377,
    host: str = "127.0.0.1",
    token: str | None = None,
    browser: bool = True,
    lectures: Path | None = None,
) -> None:
    """Serve until interrupted. Port 0 takes any free one, and a port in use the next.

    Raises ``ConfigError`` for a host that others reach without a token, for a folder of lectures
    that does not exist, or if no port is free.
    """
    if lectures is not None and not lectures.is_dir():
        raise ConfigError(f"--lectures {lectures}: the folder does not exist; create it first")
    local = host in LOOPBACK or f"[{host}]" in LOOPBACK
    if not local and not token:
        example = secrets.token_urlsafe(16)
        raise ConfigError(
            f"{host} can be reached by others: give a token, such as --token {example}, that the "
            "page will ask for"
        )
    app = studio_application(runs, token, LOOPBACK if local else None, lectures=lectures)
    listener = listen(host, port, PORTS)
    url = address(host, listener) + (f"?token={token}" if token else "")
    print(f"studio: {url}  (Ctrl-C stops it)", flush=True)
    if not (STATIC / BUILT).is_file():
        print(f"{NO_PAGE}; until then only the API answers", file=sys.stderr, flush=True)
    elif browser:
        opening = threading.Timer(0.5, webbrowser.open, [url])
        opening.daemon = True
        opening.start()
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=DRAIN
    )
    uvicorn.Server(config).run(sockets=[listener])
