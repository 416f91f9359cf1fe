"""Logs as JSON, a line for an event: lengths, times, states, and no text of anybody."""

from __future__ import annotations

import json
import logging
import sys
import time

FIELDS = [
    "run", "why", "id", "method", "route", "status", "ms", "client",
    "texts", "characters", "sentences", "cut", "bytes",
]  # fmt: skip


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, event, and the fields that we know."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        told = {"time": f"{moment}.{record.msecs:03.0f}Z", "level": record.levelname.lower()}
        told["event"] = record.getMessage()
        told |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        return json.dumps(told, ensure_ascii=False)


def log_to_stderr(level: str = "info") -> None:
    """Write what the service does to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    log = logging.getLogger("foveate.serve")
    log.handlers, log.propagate = [handler], False
    log.setLevel(level.upper())
