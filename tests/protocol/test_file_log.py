"""A file source's own log as Spark 4 writes it:
which files a batch has, across compaction and numbers that were left behind."""

import json

import pytest

from streamsink.protocol.positions import SourceFile
from streamsink.spark.gateway import file_log


class Folder:
    """A source's log in memory, which counts the bytes that are read."""

    def __init__(self):
        self.texts: dict[str, str] = {}
        self.read_bytes = 0

    def add(self, number: int, paths, compact_from: int | None = None) -> None:
        """Add the entries of a number. compact_from: one compacted file has all entries since that number."""
        lines = [line(path, number) for path in paths]
        if compact_from is not None:
            earlier = [text.split("\n")[1:] for n in range(compact_from, number) for text in [self.texts[f"f/{n}"]]]
            lines = [entry for entries in earlier for entry in entries] + lines
        self.texts[f"f/{number}.compact" if compact_from is not None else f"f/{number}"] = "\n".join(["v1", *lines])

    def read(self, path, most):
        if path not in self.texts:
            return None
        data = self.texts[path].encode()
        data = data if most is None else data[-most:]
        self.read_bytes += len(data)
        return data

    def files(self, start, end):
        return file_log.of_batch(self.read, "f", None if start is None else {"logOffset": start}, {"logOffset": end})


def line(path: str, number: int) -> str:
    return json.dumps(
        {"path": path, "timestamp": 1_700_000_000_000 + number, "batchId": number},
        separators=(",", ":"),
        ensure_ascii=False,
    )


def paths(*names) -> list[str]:
    return [f"file:///in/{name}" for name in names]


def named(found) -> list[str]:
    return [file.path.rpartition("/")[2] for file in found[1]]


@pytest.fixture
def folder():
    made = Folder()
    for number in range(9):
        made.add(number, paths(f"{number}a", f"{number}ü%20"))
    made.add(9, paths("9a", "9b"), compact_from=0)
    made.add(10, paths("10a"))
    return made


def test_each_batch_has_the_files_of_its_numbers(folder):
    assert folder.files(None, 0)[1] == tuple(SourceFile(path, 1_700_000_000_000) for path in paths("0a", "0ü%20"))
    assert named(folder.files(7, 8)) == ["8a", "8ü%20"]
    assert named(folder.files(8, 9)) == ["9a", "9b"]
    assert named(folder.files(9, 10)) == ["10a"]


def test_a_number_that_was_left_behind_is_of_the_batch_after_it(folder):
    """The driver died after the source's log and before Spark's,
    so that the next batch has the entries of both numbers, in order."""
    assert named(folder.files(6, 8)) == ["7a", "7ü%20", "8a", "8ü%20"]
    assert named(folder.files(7, 10)) == ["8a", "8ü%20", "9a", "9b", "10a"]
    for number in range(9):  # Spark deletes them some time after they are compacted.
        del folder.texts[f"f/{number}"]
    assert named(folder.files(None, 10))[-4:] == ["8ü%20", "9a", "9b", "10a"] and len(folder.files(None, 10)[1]) == 21
    assert folder.files(6, 8)[1] is None, "not known, and never a part of it"


def test_a_source_without_news_has_no_files_and_the_digest_that_it_had(folder):
    digest, found = folder.files(8, 8)
    assert found == () and digest == folder.files(7, 8)[0]
    assert file_log.of_batch(folder.read, "f", None, None) == ("", ())


def test_the_digest_is_of_the_entries_whichever_file_they_stand_in(folder):
    """A digest of an earlier version is the same for a batch of one number,
    so that the batch's replay is recognised."""
    compacted = folder.files(8, 9)[0]
    folder.texts["f/9"] = "\n".join(["v1", *(line(path, 9) for path in paths("9a", "9b"))])
    assert folder.files(8, 9)[0] == compacted
    folder.texts["f/9"] = folder.texts["f/9"].replace("9b", "9c")
    assert folder.files(8, 9)[0] != compacted and folder.files(7, 9)[0] != folder.files(8, 9)[0]


@pytest.mark.parametrize(
    "position", [{"t": {"0": 5}}, {"logOffset": {"0": 5}}, 7, "text", {"logOffset": 1, "more": 2}, {"logOffset": "1"}]
)
def test_other_sources_tell_no_files(folder, position):
    assert file_log.of_batch(folder.read, "f", None, position) == ("", None)


@pytest.mark.parametrize("text", ["v1\nno json", 'v1\n{"path":"x","batchId":11}', "v2\n\0\1", "v1", ""])
def test_a_log_that_is_not_understood_tells_no_files(folder, text):
    folder.texts["f/11"] = text
    assert folder.files(10, 11)[1] is None


def test_a_compacted_file_is_read_from_its_end():
    """100,000 files were read before, and 64 KiB are enough to name the two files of this batch. Where one batch has
    all files, the whole log is read."""
    folder = Folder()
    folder.add(0, paths(*range(100_000)))
    folder.add(1, paths("x", "ü"), compact_from=0)
    assert named(folder.files(0, 1)) == ["x", "ü"] and folder.read_bytes == 64 * 1024
    folder.texts["f/1"] = "v1\n" + line("file:///in/y", 1)
    del folder.texts["f/0"], folder.texts["f/1"]
    assert len(folder.files(None, 1)[1]) == 100_002
