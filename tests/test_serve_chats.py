"""Clients of OpenAI's chats use the server: the last message of the user is translated."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from foveate.run import Run
from foveate.serve.keys import KeyFile
from foveate.serve.translation_schemas import Limits
from serve_tools import post, served

TEXT = "the dog runs"
PATH = "/v1/chat/completions"
LIMITS = Limits(characters=100)


def chat(app: FastAPI, *texts: Any, **fields: Any) -> httpx.Response:
    messages = [{"role": "system", "content": "You translate."}]
    messages += [{"role": "user", "content": text} for text in texts]
    return post(app, PATH, json={"model": "en-fr", "messages": messages} | fields)


def test_the_last_message_of_the_user_is_translated(app: FastAPI, run: Run) -> None:
    response = chat(app, "a cat sleeps", TEXT, temperature=0.2, max_tokens=50)
    [answer], tree = run.translate([TEXT]), response.json()
    assert (tree["object"], tree["model"]) == ("chat.completion", "en-fr")
    message = {"role": "assistant", "content": str(answer)}
    assert tree["choices"] == [{"index": 0, "message": message, "finish_reason": "stop"}]
    read, written = 1 + len(TEXT.split()), 1 + len(answer.outputs[0].ids)
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    assert tree["usage"] == usage
    assert chat(app, "").json()["choices"][0]["message"]["content"] == ""


PICTURE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}


@pytest.mark.parametrize(
    ("fields", "status", "param", "what"),
    [
        ({"model": "en-de"}, 404, "model", "'en-de' is not served; there are: en-fr"),
        ({"messages": []}, 400, "messages", "none is of the role user"),
        ({"messages": [{"role": "user"}]}, 400, None, "content is missing"),
        ({"stream": True}, 400, None, "stream"),
        ({"n": 2}, 400, None, "n: "),
        ({"modle": "en-fr", "model": None}, 400, None, "did you mean model"),
        ({"messages": [PICTURE]}, 400, None, "content"),
        ({"messages": [{"role": "user", "content": "a" * 101}]}, 413, None, "at most 100"),
    ],
)
def test_errors_have_the_form_of_openai(app, fields, status, param, what) -> None:
    response = chat(app, TEXT, **fields)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (status, param, None)
    assert error["type"] == "invalid_request_error" and what in error["message"]


def test_keys_and_rates_are_those_of_other_routes(run: Run, tmp_path) -> None:
    keys = KeyFile(tmp_path / "keys")
    key = keys.add("somebody", 2)
    app = served(run.path, keys=keys)
    wrong = chat(app, TEXT)
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (403, "authentication_error")
    body = {"model": "en-fr", "messages": [{"role": "user", "content": TEXT}]}
    headers = {"Authorization": f"Bearer {key}"}
    codes = [post(app, PATH, json=body, headers=headers) for _ in range(3)]
    assert [response.status_code for response in codes] == [200, 200, 429]
    assert codes[2].json()["error"]["type"] == "rate_limit_error"
    assert int(codes[2].headers["Retry-After"]) > 0
