"""An observer that writes structured logs: one JSON object a line, never the text of an answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TextIO

import msgspec

from router.books.rows import entry_of, fault_fields, handover_of, row_of
from router.engine.observe import (
    AttemptEnded,
    CheckFailed,
    Committed,
    Detail,
    Joined,
    StreamEnded,
    TargetEjected,
    TargetRestored,
)


class JsonFormatter(logging.Formatter):
    """A log record as one JSON object; what was passed as `extra={"fields": …}` stands in it."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one line.

        Args:
            record: of the log call.
        """
        line: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def set_up_logging(stream: TextIO, level: int = logging.INFO) -> None:
    """Send every log of this process to one stream as JSON lines.

    Args:
        stream: where to.
        level: of the root logger.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


class LogObserver:
    """Logs attempts, joins, ejections and ends.

    Args:
        log: where to.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lines: dict[type[Any], Callable[[Any], tuple[int, str, dict[str, Any]]]] = {
            AttemptEnded: _attempt_ended,
            Joined: _joined,
            CheckFailed: _check_failed,
            TargetEjected: _ejected,
            TargetRestored: _restored,
            StreamEnded: _stream_ended,
        }

    def __call__(self, detail: Detail) -> None:
        """Log one detail; those of every boundary are left out.

        Args:
            detail: what happened.
        """
        if type(detail) is Committed:
            return
        line = self._lines.get(type(detail))
        if line is not None:
            level, message, fields = line(detail)
            self._log.log(level, message, extra={"fields": fields})


def _attempt_ended(detail: AttemptEnded) -> tuple[int, str, dict[str, Any]]:
    level = logging.INFO if detail.report.fault is None else logging.WARNING
    fields = {"stream_id": detail.stream_id, **_fields(entry_of(detail.report))}
    return level, "attempt ended", fields


def _joined(detail: Joined) -> tuple[int, str, dict[str, Any]]:
    fields = {
        "stream_id": detail.stream_id,
        **_fields(handover_of(detail.report)),
        "fragment_chars": detail.fragment_chars,
        "superseded_chars": detail.superseded_chars,
        "dropped": detail.dropped,
    }
    return logging.WARNING, "continued", fields


def _check_failed(detail: CheckFailed) -> tuple[int, str, dict[str, Any]]:
    fields = {
        "stream_id": detail.stream_id,
        "route": detail.route,
        "reason": detail.reason,
        "rejected": detail.rejected,
    }
    return logging.ERROR, "boundary check failed", fields


def _ejected(detail: TargetEjected) -> tuple[int, str, dict[str, Any]]:
    level = logging.ERROR if detail.alarm else logging.WARNING
    fields = {
        "target": detail.target,
        "cool_down_s": detail.cool_down_s,
        "alarm": detail.alarm,
        **fault_fields(detail.fault),
    }
    return level, "target ejected", fields


def _restored(detail: TargetRestored) -> tuple[int, str, dict[str, Any]]:
    return logging.INFO, "target restored", {"target": detail.target}


def _stream_ended(detail: StreamEnded) -> tuple[int, str, dict[str, Any]]:
    """The row of the books, as it stands there; the log knows by its place which router it is."""
    row = row_of(detail.report)
    good = row.outcome in ("completed", "client_gone")
    fields = _fields(row)
    del fields["replica"]
    return logging.INFO if good else logging.ERROR, "stream ended", fields


def _fields(row: msgspec.Struct) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(row)
    return fields
