"""What messages tell a person to do by hand has a command, which the message names, or a reason why it has none."""

import re

import pytest

from tests.advice import by_hand

# Advice without a command: a pattern for ``<place> <advice>``, and why no command of ours does it.
WITHOUT = {
    # -- done in the program of the query
    r"set another application|set dead_letters|^spark/|set accept_as_(new|seen) (as|to)|^table/write/": (
        "It is done in the query's own program, or in its session, which no command starts."
    ),
    r"in the query|Set application|Set … to go on|rename one of them|set them to null|^table/routed/dead_letters": (
        "It is done in the query's own program."
    ),
    r"leave create=False out|create_table=True|create=True|^sinks/paimon/routed.py|^storage/s3_client": (
        "What is created (a table with the user's columns, a bucket) is the user's to say; the sink can create a table."
    ),
    r"Set the option 'lock'|^sinks/kafka/client|^sinks/kafka/sink|^options/": "It is an option of the query.",
    # -- a whole destination
    r"[Rr]estore (the|that)( first)? (table|destination|checkpoint|database)|[Rr]estore the one that wrote last|"
    r"Restore the tables or|Restore the newest copy|^sinks/paimon/letter_tables.py:_unknown Restore it|"
    r"^table/table.py:create_table Restore it|^sinks/lake_tables/creation.py:found_or_made Restore it|"
    r"^commands/own_sinks.py:\w+ restore it|^sinks/iceberg/committer.py:_look Restore it": (
        "A whole table, database or checkpoint comes back by the program that has made its backup; the error is gone "
        "then, or says what to do next."
    ),
    r"[Rr]estore what the query's error names": "That error names the command.",
    r"Restore the journal's folder$|restore the journal's folder and": "Which of the folders it is, the query knows.",
    # -- by other programs
    r"^sinks/(databases|delta|iceberg|transactions/memory)|^sinks/kafka/markers|^catalogs/": (
        "The destination, or the catalog, is another program's, whose own commands do it (SQL, deltalake, pyiceberg, "
        "kafka-configs)."
    ),
    r"^catalogs/": "The catalog is another program's, whose own commands do it (CREATE DATABASE, ALTER or DROP TABLE).",
    r"^sinks/paimon/(promise|trouble).py:|^sinks/files.py:compare_handed_over|set the clocks right|"
    r"Put the table on one with hard links": (
        "It is done to the machine or to its disks (mounts, links, folders of others), by its own commands."
    ),
    r"^sinks/directory/file_sink.py:_check_(foreign|left_over)": (
        "The files in that directory are rows, or somebody else's; only their owner can say that they may go."
    ),
    r"^sinks/fan_out/membership.py:_check_joining": "Which rows another table shall have is the user's to say.",
    r"^commands/give_up.py:_check_unpublished|^operations/restoring.py": (
        "Which of several tables or copies is right is for a person to decide; doctor names the command for each file."
    ),
    r"^commands/sinks_verified.py|^sinks/paimon/past/chain_errors.py:first_start": "Folders that somebody has removed "
    "on purpose, or rows that only some tables have: a person decides.",
    r"^table/branching/(rollback|fast_forward).py:\w+ Restore them": "check_there adds the command at its end.",
    r"^compaction/attempts.py:_say_damaged|^protocol/ways.py:delete_damaged": "The command is put in behind it.",
    r"^operations/doctor.py": "The doctor puts the command in.",
    r"^table/history/renamed_folders.py": (
        "The option says where files are, and set-options refuses such options: the engine that has set it does it."
    ),
    r"^table/care/removal.py:_has_snapshots": "A snapshot is gone that no file names any more: a backup of the table.",
    # -- no advice
    r"put back (from|to) an|set before that happens|set back to an older|delete this name all the time|"
    r"truncate\(n\)|create is False|SET |DELETE t|COPY …|commands/own_sinks.py:open_sink create": "It is no advice.",
}


def test_advice_to_do_something_by_hand_names_the_command():
    """The next error cannot forget it."""
    found = [
        f"{each.place} {each.advice}  (line {each.line})"
        for each in by_hand.without_command()
        if not any(re.search(pattern, f"{each.place} {each.advice}") for pattern in WITHOUT)
    ]
    assert found == []


def test_each_reason_is_needed():
    """A pattern that fits nothing any more hides what comes later."""
    texts = [f"{each.place} {each.advice}" for each in by_hand.without_command()]
    assert [pattern for pattern in WITHOUT if not any(re.search(pattern, text) for text in texts)] == []


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ('raise Corrupt(f"{path}: it is torn. Delete the file", kind="a.b")', True),
        ('raise Corrupt(f"{path}: it is torn. Restore it " "from a backup", kind="a.b")', True),
        ('raise Corrupt(f"{path}: torn. Delete it {shell.discard(path)}", kind="a.b")', False),
        ('raise Corrupt(f"{path}: torn; or remove it, and start again: \'streamsink discard X\'", kind="a.b")', False),
        ('raise Misuse("Nothing was written. Set lock=\'file\'", kind="a.b")', False),
        ('"""Delete the file. Or else."""', False),
    ],
)
def test_the_finder_finds_it(tmp_path, monkeypatch, source, is_found):
    monkeypatch.setattr(by_hand, "LIBRARY", tmp_path)
    (tmp_path / "some.py").write_text(source + "\n")
    assert bool(by_hand.without_command()) is is_found
