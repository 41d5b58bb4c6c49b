"""What tests of replays of dead letters share: the lake's letters, and a replay of them."""

import streamsink
from streamsink.operations.letters.replay import Replay, replay
from streamsink.operations.letters.selection import Chosen
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io

NAME = "replay-rejected"
ALL = list(range(12))


def rejected(clicks: str) -> str:
    """The table with the letters of the table clicks."""
    return clicks.replace("clicks", "rejected")


def options(clicks: str, **given) -> SinkOptions:
    """Of a replay."""
    return SinkOptions.of(clicks, {"application": NAME, **given})


def replayed(clicks: str, **given) -> Replay:
    """Replay all letters of the table clicks."""
    kept = {"earlier_tables": given.pop("earlier_tables")} if "earlier_tables" in given else {}
    return replay(local_file_io(False), clicks, rejected(clicks), Chosen("clicks"), options(clicks, **given), **kept)


def ids(clicks: str) -> list[int]:
    """Of the rows of a table."""
    return sorted(streamsink.read_arrow(clicks, columns=["id"])["id"].to_pylist())
