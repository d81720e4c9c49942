"""Structured logs: one JSON object per line, without the texts of requests."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback


class JsonFormatter(logging.Formatter):
    """Time, level, message and facts of a record; of an exception its kind and its place, but not its words."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a line of JSON."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        values = {"time": f"{moment}.{record.msecs:03.0f}Z", "level": record.levelname.lower()}
        values |= {"message": record.getMessage(), **getattr(record, "facts", {})}
        if record.exc_info and record.exc_info[0] is not None:
            frames = traceback.extract_tb(record.exc_info[2])
            values["error"] = record.exc_info[0].__name__
            values["at"] = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
        return json.dumps(values, ensure_ascii=False, default=str)


def configure_logs(level: str) -> None:
    """Write logs of the service and of its server to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name, minimum in (("ramify.serve", level), ("uvicorn.error", "warning")):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(minimum.upper())
