"""Walks into destinations that are no tables, each with a defect that it finds; see ``tests/walks/shown.py``."""

from tests.walks.walker import Walk

_BATCH = [("produce", 0, 0, 0), ("batch", 0, 0)]

ELSEWHERE: dict[str, Walk] = {
    "a database commits rows before it remembers them": [
        ("database", 0, 0, 0, 0, 0, 0),
        *_BATCH,
        ("produce", 0, 0, 0),
        ("statement", 0, 0, 10, 0),
    ],
    "a database commits behind any other record": [
        ("database", 0, 0, 0, 0, 0, 0),
        *_BATCH,
        ("produce", 0, 1, 0),
        ("pause", 0, 0, 57),
        *_BATCH,
        ("batch", 0, 0),
    ],
    "files get their names when they are visible already": [("files", 0, 0, 0, 0, 0, 0), *_BATCH],
    "rows are written beside folders that nothing knows": [
        ("files", 0, 1, 0, 0, 0, 0),
        *_BATCH,
        *_BATCH,
        *_BATCH,
        *_BATCH,
        *_BATCH,
        ("lose_journal", 0),
        ("lose_known", 1),
    ],
    "a manifest among others is not missed": [
        ("files", 0, 1, 0, 1, 0, 0),
        ("produce", 0, 0, 0),
        ("produce", 0, 1, 0),
        ("copied_job", 0, 0, 0, 1),
        ("copied_job", 0, 2, 0, 1),
        ("pause", 0, 0, 416),
        ("lose_known", 1),
    ],
    "what a dead driver began stays open": [
        ("notes", 0, 0, 0, 0, 0, 0),
        ("produce", 0, 2, 1),
        ("batch", 0, 0),
        ("pause", 0, 0, 4),
        ("batch", 0, 0),
    ],
    "a query of a destination that was made anew is not known by its first name": [
        ("kept", 0, 0, 0, 0, 0, 0),
        ("produce", 0, 0, 0),
        ("copy", 2, 0),
        ("batch", 0, 0),
        ("rename_at_once", 0),
        ("restore", 0, 0),
    ],
}
