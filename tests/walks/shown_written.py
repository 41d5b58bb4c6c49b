"""More walks that find defects which drawn ones seldom find; each was written, or bred from one that was, for the one guard. ``shown.py`` has them all."""

from tests.walks.walker import Walk

WRITTEN: dict[str, Walk] = {
    "without a mark everything is there": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 3, 0), ("batch", 0, 2), ("foreign_append", 0, 0), ("expiry", 0, 0),
        ("produce", 0, 4, 0), ("batch", 0, 1), ("foreign_prepare", 0, 0), ("crash", 0, 3, 20, 0), ("foreign_append", 0, 0),
        ("foreign_rename",), ("batch", 0, 0), ("rollback", 0, 0, 0),
    ],
    "the mark of any record of a table is that of another one": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 3, 0), ("batch", 0, 2), ("foreign_append", 0, 0), ("expiry", 0, 0),
        ("produce", 0, 4, 0), ("batch", 0, 1), ("foreign_prepare", 0, 0), ("crash", 0, 3, 20, 0), ("foreign_append", 0, 0),
        ("foreign_rename",), ("batch", 0, 0), ("rollback", 0, 0, 0),
    ],
    "an older snapshot in the marked one's place is no loss": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 4, 0), ("batch", 0, 1), ("produce", 0, 4, 0), ("batch", 0, 3),
        ("foreign_prepare", 0, 0), ("batch", 0, 3), ("foreign_rename",), ("expiry", 0, 0),
    ],
    "a table that ends before the marked snapshot has it": [
        ("several", 1, 1, 1, 1, 0, 1), ("produce", 0, 4, 0), ("batch", 0, 3), ("foreign_append", 0, 0), ("expiry", 0, 0),
        ("produce", 0, 4, 0), ("produce", 0, 4, 0), ("batch", 0, 3), ("batch", 0, 3), ("rollback", 0, 0, 1),
    ],
    "the mark of several tables does not say where": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 2), ("foreign_append", 0, 0), ("expiry", 0, 0),
        ("produce", 0, 4, 0), ("produce", 0, 4, 0), ("batch", 0, 3), ("batch", 0, 3), ("batch", 0, 0), ("batch", 0, 0),
        ("rollback", 0, 0, 0),
    ],
    "a record repeats the last one's marks alone": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 2), ("foreign_append", 0, 0), ("expiry", 0, 0),
        ("produce", 0, 4, 0), ("produce", 0, 4, 0), ("batch", 0, 3), ("batch", 0, 3), ("batch", 0, 0), ("batch", 0, 0),
        ("rollback", 0, 0, 0),
    ],
    "a record repeats no marks": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 2), ("foreign_append", 0, 0), ("expiry", 0, 0),
        ("produce", 0, 4, 0), ("produce", 0, 4, 0), ("batch", 0, 3), ("batch", 0, 3), ("batch", 0, 0), ("batch", 0, 0),
        ("rollback", 0, 0, 0),
    ],
    "a mark of several tables that was torn stays so": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 2), ("foreign_append", 0, 0), ("expiry", 0, 0),
        ("produce", 0, 4, 0), ("produce", 0, 4, 0), ("batch", 0, 3), ("crash", 0, 3, 23, 1), ("batch", 0, 0), ("batch", 0, 0),
        ("batch", 0, 0), ("rollback", 0, 0, 0),
    ],
    "a new name has a part in the tables with rows alone": [
        ("several", 1, 1, 1, 1, 0, 1), ("produce", 0, 2, 0), ("batch", 0, 3), ("rename_at_once", 0), ("produce", 0, 4, 0),
        ("batch", 0, 3), ("drop", 0, 1),
    ],
    "a new name goes on whatever a table has lost of the first one": [
        ("several", 1, 1, 1, 1, 0, 1), ("produce", 0, 2, 0), ("batch", 0, 0), ("batch", 0, 3), ("rollback", 0, 0, 1),
        ("rename_at_once", 0), ("produce", 0, 4, 0), ("batch", 0, 3),
    ],
    "a new name goes on whatever was dropped and created again": [
        ("several", 1, 1, 1, 1, 0, 1), ("produce", 0, 2, 0), ("batch", 0, 3), ("drop", 0, 0), ("foreign_append", 0, 0),
        ("foreign_append", 0, 0), ("expiry", 0, 0), ("rename_at_once", 0), ("produce", 0, 4, 0), ("batch", 0, 3),
    ],
    "without the first name's journal its tables have had nothing": [
        ("several", 1, 1, 1, 1, 0, 1), ("produce", 0, 2, 0), ("batch", 0, 3), ("lose_journal", 0), ("rename", 0), ("produce", 0, 4, 0),
        ("batch", 0, 3), ("heal", 0, 0), ("batch", 0, 3), ("heal", 0, 0), ("batch", 0, 3), ("drop", 0, 1),
    ],
    "letters: a group hides the number of a record": [
        ("setup", 0, 1, 0, 0, 3, 0), ("letters", 0, 1), ("produce", 0, 1, 0), ("produce", 0, 4, 0), ("batch", 0, 0), ("batch", 0, 2),
        ("crash", 0, 2, 12, 0), ("rollback", 0, 0), ("letters", 0, 0),
    ],
    "letters: a table that goes under the query is taken for its own": [
        ("setup", 1, 1, 1, 1, 0, 1), ("letters", 0, 1), ("letters", 7, 1), ("produce", 0, 4, 0), ("produce", 7, 4, 0),
        ("produce", 0, 4, 0), ("batch", 0, 3), ("drop_letters", 0), ("batch", 7, 3), ("batch", 0, 3),
    ],
    "letters: what nobody can tell is published": [
        ("setup", 0, 0, 0, 0, 0, 0), ("letters", 0, 1), ("letters", 7, 1), ("produce", 0, 2, 0), ("batch", 0, 0), ("produce", 0, 0, 0),
        ("crash", 0, 0, 23, 0), ("letters_expiry", 0, 0), ("produce", 7, 2, 0), ("batch", 7, 0), ("letters_expiry", 0, 0),
    ],
    "letters: what is there under a later number is not": [
        ("setup", 0, 1, 0, 0, 0, 0), ("letters", 0, 1), ("produce", 0, 4, 0), ("produce", 0, 4, 0), ("batch", 0, 0),
        ("foreign_prepare", 0), ("batch", 0, 2), ("letters_expiry", 0, 0), ("crash", 0, 2, 23, 0), ("letters_expiry", 0, 1),
        ("foreign_rename",),
    ],
    "what the first name had may be anywhere behind another writer's snapshot": [
        ("setup", 0, 1, 0, 0, 0, 0), ("letters", 0, 1), ("produce", 0, 1, 0), ("batch", 0, 0), ("foreign_append", 0), ("rollback", 0, 1),
        ("foreign_prepare", 0), ("pause", 0, 0, 30), ("move", 7), ("wake",), ("rename_at_once", 0), ("produce", 0, 0, 0),
        ("crash", 0, 0, 12, 0), ("foreign_rename",), ("expiry", 0),
    ],
    "files that others built on are added again after a lost reply": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("pause_at", 0, 0, 15, 0), ("copy", 1, 0), ("copy", 2, 0), ("restore", 1, 0),
        ("foreign_prepare", 0), ("crash", 0, 0, 20, 0), ("foreign_append", 0), ("restore", 0, 0), ("foreign_rename",),
    ],
    "C1: a sweep does not look whether a file is named": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 4, 0), ("batch", 0, 0), ("batch", 0, 0), ("batch", 0, 0), ("lost_race", 0, 0, 0, 1),
    ],
    "C1: tags are not looked at": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 1, 0), ("batch", 0, 0), ("foreign_prepare", 0), ("crash", 0, 0, 20, 0), ("tag", 0),
        ("foreign_rename",),
    ],
    "C5: another writer's snapshot is taken back": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 4, 0), ("batch", 0, 0), ("foreign_prepare", 0), ("pause_at", 0, 0, 15, 1),
        ("foreign_append", 0), ("foreign_rename",), ("expiry", 1), ("wake",), ("rollback", 0, 0), ("foreign_append", 0), ("expiry", 0),
    ],
    "a snapshot that lost its line cannot be told from one of the line": [
        ("setup", 4, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("crash", 0, 0, 20, 0), ("foreign_overwrite", 0, 0), ("foreign_prepare", 0),
        ("foreign_append", 0), ("foreign_append", 0), ("foreign_rename",), ("expiry", 1),
    ],
    "what cannot be told after a lost reply is published": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("pause_at", 0, 0, 15, 0), ("copy", 1, 0), ("foreign_prepare", 0),
        ("crash", 0, 0, 20, 0), ("foreign_overwrite", 0, 0), ("restore", 0, 0), ("foreign_rename",), ("foreign_append", 0),
        ("foreign_append", 0), ("copy", 2, 0), ("restore", 1, 0),
    ],
    "a hint that a sleeper left is a table's": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("pause_at", 0, 0, 16, 0), ("drop", 0),
    ],
    "a token accepts every accident": [
        ("setup", 0, 0, 0, 0, 2, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("night", 1, 0), ("lose_checkpoint_behind", 0),
    ],
    "A6: a journal without its identity knows all": [
        ("setup", 0, 0, 0, 0, 0, 0), ("run", 0, 1), ("lose_journal", 4), ("run", 0, 1), ("foreign_append", 0), ("foreign_append", 0),
        ("expiry", 0), ("lose_identity", 4),
    ],
    "letters: a retired application stays there": [
        ("setup", 4, 1, 1, 1, 0, 1), ("heal", 22, 804), ("letters", 0, 1), ("produce", 0, 4, 0), ("batch", 0, 3), ("rename", 0),
        ("batch", 0, 3), ("heal", 0, 949), ("batch", 0, 3), ("produce", 0, 3, 0), ("batch", 0, 3), ("retire", 0), ("rename", 0),
        ("batch", 0, 3), ("produce", 961, 635, 883), ("heal", 0, 0), ("batch", 0, 3), ("heal", 0, 1), ("batch", 0, 3),
    ],
    "A2: who says that a topic is another one begins behind it": [
        ("setup", 1, 7, 1, 1, 1, 1), ("produce", 0, 0, 0), ("batch", 0, 0), ("recreate", 0, 2, 2), ("batch", 0, 0), ("heal", 0, 0),
        ("begin_at_latest", 0),
    ],
    "a rollback past the first name under a running query is not seen": [
        ("setup", 0, 0, 0, 0, 2, 0), ("run", 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("rename", 0), ("produce", 0, 0, 0),
        ("batch", 0, 0), ("heal", 0, 1), ("batch", 0, 0), ("rollback", 0, 0),
    ],
    "a topic that lost messages goes on from an earlier name": [
        ("setup", 1, 11, 1, 4, 0, 1), ("produce", 0, 4, 0), ("batch", 0, 3), ("batch", 0, 3), ("rename_at_once", 0),
        ("recreate", 0, 1, 3), ("batch", 0, 3), ("produce", 0, 4, 0), ("batch", 0, 3),
    ],
    "behind what is written means behind the end of the topic before": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 4, 0), ("batch", 0, 1), ("rename", 0), ("batch", 0, 0), ("heal", 0, 0),
        ("recreate", 0, 0, 0), ("rename", 0), ("batch", 0, 0), ("heal", 0, 0), ("produce", 0, 0, 0),
    ],
    "a name that is taken back is not asked for": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 4, 0), ("batch", 0, 0), ("rename", 0), ("batch", 0, 0), ("heal", 0, 1),
        ("batch", 0, 0), ("rename", 0),
    ],
    "one of several tables speaks for all of them where the journal is lost": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 4, 0), ("produce", 0, 4, 0), ("batch", 0, 0), ("rename", 0), ("batch", 0, 0),
        ("heal", 0, 1), ("batch", 0, 0), ("batch", 0, 1), ("lose_journal", 0), ("rollback", 0, 0, 0), ("rename_at_once", 0),
    ],
    "a batch without rows stops another name": [
        ("setup", 1, 1, 1, 1, 0, 1), ("copy", 0, 0), ("produce", 0, 1, 0), ("batch", 0, 0), ("batch", 0, 0), ("rename", 0),
        ("copy", 0, 0), ("rename", 0), ("restore", 0, 1), ("crash", 0, 3, 20, 0), ("rename", 0), ("batch", 0, 3), ("heal", 0, 1),
        ("batch", 0, 3), ("restore", 1, 1), ("produce", 0, 0, 0), ("batch", 0, 0),
    ],
    "a new checkpoint begins behind what the first name has not published": [
        ("setup", 0, 0, 0, 1, 0, 3), ("produce", 0, 0, 0), ("crash", 0, 0, 0, 0), ("copy", 0, 0), ("rename", 0), ("batch", 0, 0),
        ("lose_checkpoint", 0), ("produce", 0, 0, 0), ("batch", 0, 1), ("rollback", 0, 0), ("rename_at_once", 0), ("restore", 0, 0),
        ("batch", 0, 0), ("heal", 0, 0), ("batch", 0, 0), ("rename", 0),
    ],
    "C3: records of another table are published": [
        ("setup", 0, 0, 0, 0, 0, 0), ("run", 0, 0), ("drop", 1), ("foreign_append", 0), ("foreign_append", 0), ("expiry", 0),
    ],
    "A9: files that are there prove that a record is pending": [
        ("setup", 4, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("crash", 0, 0, 20, 0), ("tag", 0), ("foreign_append", 0), ("compaction",),
        ("foreign_append", 0), ("expiry", 0),
    ],
    "a mark of another table counts for this one": [
        ("setup", 4, 0, 0, 0, 0, 0), ("job_pause", 0, 0, 167), ("run", 0, 1), ("drop", 0), ("run", 1, 0),
    ],
    "a checkpoint of another past goes on": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("copy", 4, 0), ("produce", 0, 0, 0), ("batch", 0, 0),
        ("copy", 0, 0), ("restore", 0, 0), ("produce", 0, 0, 0), ("batch", 0, 1), ("restore", 1, 0),
    ],
    "rows that went with a rollback are said to be there": [
        ("setup", 1, 0, 0, 0, 0, 0), ("produce", 0, 4, 0), ("batch", 0, 0), ("produce", 0, 2, 0), ("lost_race", 0, 0, 0, 2),
        ("foreign_append", 0), ("foreign_append", 0), ("pause", 0, 0, 92), ("rollback", 1, 0), ("wake",),
    ],
    "a name that led on is ahead when batch ids go back": [
        ("setup", 0, 1, 0, 1, 0, 0), ("produce", 0, 3, 0), ("batch", 0, 0), ("rename", 0), ("copy", 0, 0), ("rename", 0),
        ("batch", 0, 0), ("batch", 0, 0), ("rename", 0), ("batch", 0, 0), ("heal", 0, 1), ("batch", 0, 0), ("restore", 0, 0),
        ("batch", 0, 0), ("stop", 0),
    ],
    "a name that was led on to is not ahead when its batch ids went back": [
        ("setup", 0, 1, 0, 1, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 0), ("rename", 0), ("copy", 0, 0), ("rename", 0),
        ("batch", 0, 0), ("rename", 0), ("batch", 0, 0), ("heal", 0, 1), ("batch", 0, 0), ("restore", 0, 0), ("batch", 0, 0),
        ("rename", 0),
    ],
    "a journal of another past tells how far several tables are": [
        ("several", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("copy", 3, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0),
        ("copy", 1, 0, 0), ("restore", 0, 0), ("produce", 0, 1, 0), ("batch", 0, 1), ("restore", 1, 0),
    ],
    "a new checkpoint that begins behind the first name is told to begin there": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 1, 0), ("batch", 0, 0), ("letters", 0, 0), ("rename_at_once", 0), ("batch", 0, 0),
        ("foreign_overwrite", 0, 0), ("lose_journal", 0), ("foreign_append", 0), ("foreign_append", 0), ("expiry", 0),
    ],
}
