"""The log as JSON: one object a line, whose keys are stable. A formatter for Python's own logging.

``handler.setFormatter(streamsink.metrics.JsonFormatter())`` on a handler of the logger ``streamsink`` is the whole
option. Events and warnings come out in one form.
"""

import json
import logging
from dataclasses import asdict, is_dataclass
from datetime import datetime, timezone
from typing import Any

from streamsink.events import Event


class JsonFormatter(logging.Formatter):
    """Makes of each log line one JSON object without a line break.

    Of an event: ``time`` (ISO 8601, UTC, ms), ``level``, ``event`` (the name of its kind), ``table``, ``application``,
    and the fields of the event under their names in ``streamsink.events``; times in ms, sizes in bytes. Of any other
    line: ``time``, ``level``, ``logger``, ``message``, and ``error`` with a traceback where it has one. sources: of a
    batch, its offsets or files, which may be long, are written as well.
    """

    def __init__(self, *, sources: bool = False):
        super().__init__()
        self._sources = sources

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        said: dict[str, Any] = {"time": at.replace("+00:00", "Z"), "level": record.levelname}
        event = getattr(record, "event", None)
        if isinstance(event, Event):
            said |= {"event": type(event).__name__, "table": event.table, "application": event.application}
            said |= event.said()
            if self._sources and hasattr(event, "sources"):
                said["sources"] = [_positions(source) for source in event.sources]
        else:
            said |= {"logger": record.name, "message": record.getMessage()}
            if record.exc_info:
                said["error"] = self.formatException(record.exc_info)
        return json.dumps(said, default=_plain)


def _positions(source: Any) -> dict[str, Any]:
    """What a source has read for a batch: of a ``SourceRange``, or as Spark tells it."""
    if isinstance(source, tuple):
        name, start, end = source
        return {"name": name, "start": start, "end": end, "files": None}
    files = [file.path for file in source.files] if source.files is not None else None
    return {"name": source.name, "start": source.start, "end": source.end, "files": files}


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)
