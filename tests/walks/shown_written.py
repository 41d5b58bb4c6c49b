"""Walks of one table that find defects which drawn walks seldom find.

Each was written, or bred from one that was written, for one guard. ``shown.py`` has them all.
"""

from tests.walks.walker import Walk

# A source whose positions count its steps, and of which no log tells more; its checkpoint comes back from another past,
# or from before its first batch.
_OTHER_PAST = [
    ("setup", 0, 3, 0, 0, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("copy", 4, 0), ("produce", 0, 0, 0),
    ("batch", 0, 0), ("copy", 0, 0), ("restore", 0, 0), ("produce", 0, 0, 0), ("batch", 0, 1), ("restore", 1, 0),
]
_PLANNED_ANEW = [
    ("setup", 0, 3, 0, 0, 0, 0), ("copy", 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("restore", 0, 0),
]
WRITTEN: dict[str, Walk] = {
    "letters: a group hides the number of a record": [
        ("setup", 0, 1, 0, 0, 3, 0), ("letters", 0, 1), ("produce", 0, 1, 0), ("produce", 0, 4, 0), ("batch", 0, 0),
        ("batch", 0, 2), ("crash", 0, 2, 12, 0), ("rollback", 0, 0), ("letters", 0, 0),
    ],
    "letters: a table that goes under the query is taken for its own": [
        ("setup", 1, 1, 1, 1, 0, 1), ("letters", 0, 1), ("letters", 7, 1), ("produce", 0, 4, 0), ("produce", 7, 4, 0),
        ("produce", 0, 4, 0), ("batch", 0, 3), ("drop_letters", 0), ("batch", 7, 3), ("batch", 0, 3),
    ],
    "letters: what nobody can tell is published": [
        ("setup", 0, 0, 0, 0, 0, 0), ("letters", 0, 1), ("letters", 7, 1), ("produce", 0, 2, 0), ("batch", 0, 0),
        ("produce", 0, 0, 0), ("crash", 0, 0, 23, 0), ("letters_expiry", 0, 0), ("produce", 7, 2, 0), ("batch", 7, 0),
        ("letters_expiry", 0, 0),
    ],
    "what the first name had may be anywhere behind another writer's snapshot": [
        ("setup", 0, 1, 0, 0, 0, 0), ("letters", 0, 1), ("produce", 0, 1, 0), ("batch", 0, 0), ("foreign_append", 0),
        ("rollback", 0, 1), ("foreign_prepare", 0), ("pause", 0, 0, 30), ("move", 7), ("wake",), ("rename_at_once", 0),
        ("produce", 0, 0, 0), ("crash", 0, 0, 12, 0), ("foreign_rename",), ("expiry", 0),
    ],
    "files that others built on are added again after a lost reply": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("pause_at", 0, 0, 15, 0), ("copy", 1, 0), ("copy", 2, 0),
        ("restore", 1, 0), ("foreign_prepare", 0), ("crash", 0, 0, 20, 0), ("foreign_append", 0), ("restore", 0, 0),
        ("foreign_rename",),
    ],
    "a checkpoint of another past goes on where no log tells": _OTHER_PAST,
    "when a batch was planned is not recorded": _OTHER_PAST,
    "what was planned once more under one number is a replay": _PLANNED_ANEW,
    "who adopts a batch is not told what is not read then": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 3), ("lose_journal", 0), ("foreign_append", 0),
        ("foreign_append", 0), ("expiry", 0), ("rename_at_once", 0), ("recreate", 0, 1, 5),
    ],
    "C1: a sweep does not look whether a file is named": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 4, 0), ("batch", 0, 0), ("batch", 0, 0), ("batch", 0, 0),
        ("lost_race", 0, 0, 0, 1),
    ],
    "C1: tags are not looked at": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 1, 0), ("batch", 0, 0), ("foreign_prepare", 0),
        ("crash", 0, 0, 20, 0), ("tag", 0), ("foreign_rename",),
    ],
    "a snapshot that lost its line cannot be told from one of the line": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("crash", 0, 0, 20, 0), ("foreign_overwrite", 0, 0),
        ("foreign_prepare", 0), ("foreign_append", 0), ("foreign_append", 0), ("foreign_rename",), ("expiry", 1),
    ],
    "what cannot be told after a lost reply is published": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("pause_at", 0, 0, 15, 0), ("copy", 1, 0),
        ("foreign_prepare", 0), ("crash", 0, 0, 20, 0), ("foreign_overwrite", 0, 0), ("restore", 0, 0),
        ("foreign_rename",), ("foreign_append", 0), ("foreign_append", 0), ("copy", 2, 0), ("restore", 1, 0),
    ],
    "a hint that a sleeper left is a table's": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("pause_at", 0, 0, 16, 0), ("drop", 0),
    ],
    "a token accepts every accident": [
        ("setup", 0, 0, 0, 0, 2, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("night", 1, 0),
        ("lose_checkpoint_behind", 0),
    ],
    "A6: a journal without its identity knows all": [
        ("setup", 0, 0, 0, 0, 0, 0), ("run", 0, 1), ("lose_journal", 4), ("run", 0, 1), ("foreign_append", 0),
        ("foreign_append", 0), ("expiry", 0), ("lose_identity", 4),
    ],
    "letters: a retired application stays there": [
        ("setup", 4, 1, 1, 1, 0, 1), ("heal", 22, 804), ("letters", 0, 1), ("produce", 0, 4, 0), ("batch", 0, 3),
        ("rename", 0), ("batch", 0, 3), ("heal", 0, 949), ("batch", 0, 3), ("produce", 0, 3, 0), ("batch", 0, 3),
        ("retire", 0), ("rename", 0), ("batch", 0, 3), ("produce", 961, 635, 883), ("heal", 0, 0), ("batch", 0, 3),
        ("heal", 0, 1), ("batch", 0, 3),
    ],
    "A2: who says that a topic is another one begins behind it": [
        ("setup", 1, 7, 1, 1, 1, 1), ("produce", 0, 0, 0), ("batch", 0, 0), ("recreate", 0, 2, 2), ("batch", 0, 0),
        ("heal", 0, 0), ("begin_at_latest", 0),
    ],
    "a rollback past the first name under a running query is not seen": [
        ("setup", 0, 0, 0, 0, 2, 0), ("run", 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("rename", 0),
        ("produce", 0, 0, 0), ("batch", 0, 0), ("heal", 0, 1), ("batch", 0, 0), ("rollback", 0, 0),
    ],
    "a topic that lost messages goes on from an earlier name": [
        ("setup", 1, 11, 1, 4, 0, 1), ("produce", 0, 4, 0), ("batch", 0, 3), ("batch", 0, 3), ("rename_at_once", 0),
        ("recreate", 0, 1, 3), ("batch", 0, 3), ("produce", 0, 4, 0), ("batch", 0, 3),
    ],
    "behind what is written means behind the end of the topic before": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 4, 0), ("batch", 0, 1), ("rename", 0), ("batch", 0, 0),
        ("heal", 0, 0), ("recreate", 0, 0, 0), ("rename", 0), ("batch", 0, 0), ("heal", 0, 0), ("produce", 0, 0, 0),
    ],
    "a name that is taken back is not asked for": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 4, 0), ("batch", 0, 0), ("rename", 0), ("batch", 0, 0),
        ("heal", 0, 1), ("batch", 0, 0), ("rename", 0),
    ],
    "a new checkpoint begins behind what the first name has not published": [
        ("setup", 0, 0, 0, 1, 0, 3), ("produce", 0, 0, 0), ("crash", 0, 0, 0, 0), ("copy", 0, 0), ("rename", 0),
        ("batch", 0, 0), ("lose_checkpoint", 0), ("produce", 0, 0, 0), ("batch", 0, 1), ("rollback", 0, 0),
        ("rename_at_once", 0), ("restore", 0, 0), ("batch", 0, 0), ("heal", 0, 0), ("batch", 0, 0), ("rename", 0),
    ],
    "C3: records of another table are published": [
        ("setup", 0, 0, 0, 0, 0, 0), ("run", 0, 0), ("drop", 1), ("foreign_append", 0), ("foreign_append", 0),
        ("expiry", 0),
    ],
    "A9: files that are there prove that a record is pending": [
        ("setup", 4, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("crash", 0, 0, 20, 0), ("tag", 0), ("foreign_append", 0),
        ("compaction",), ("foreign_append", 0), ("expiry", 0),
    ],
    "a mark of another table counts for this one": [
        ("setup", 4, 0, 0, 0, 0, 0), ("job_pause", 0, 0, 161), ("run", 0, 1), ("drop", 0), ("run", 1, 0),
    ],
    "a checkpoint of another past goes on": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("copy", 4, 0), ("produce", 0, 0, 0),
        ("batch", 0, 0), ("copy", 0, 0), ("restore", 0, 0), ("produce", 0, 0, 0), ("batch", 0, 1), ("restore", 1, 0),
    ],
    "rows that went with a rollback are said to be there": [
        ("setup", 1, 0, 0, 0, 0, 0), ("produce", 0, 4, 0), ("batch", 0, 0), ("produce", 0, 2, 0),
        ("lost_race", 0, 0, 0, 2), ("foreign_append", 0), ("foreign_append", 0), ("pause", 0, 0, 88),
        ("rollback", 1, 0), ("wake",),
    ],
    "a name that led on is ahead when batch ids go back": [
        ("setup", 0, 1, 0, 1, 0, 0), ("produce", 0, 3, 0), ("batch", 0, 0), ("rename", 0), ("copy", 0, 0),
        ("rename", 0), ("batch", 0, 0), ("batch", 0, 0), ("rename", 0), ("batch", 0, 0), ("heal", 0, 1),
        ("batch", 0, 0), ("restore", 0, 0), ("batch", 0, 0), ("stop", 0),
    ],
    "a name that was led on to is not ahead when its batch ids went back": [
        ("setup", 0, 1, 0, 1, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 0), ("rename", 0), ("copy", 0, 0),
        ("rename", 0), ("batch", 0, 0), ("rename", 0), ("batch", 0, 0), ("heal", 0, 1), ("batch", 0, 0),
        ("restore", 0, 0), ("batch", 0, 0), ("rename", 0),
    ],
    "a new checkpoint that begins behind the first name is told to begin there": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 1, 0), ("batch", 0, 0), ("letters", 0, 0), ("rename_at_once", 0),
        ("batch", 0, 0), ("foreign_overwrite", 0, 0), ("lose_journal", 0), ("foreign_append", 0), ("foreign_append", 0),
        ("expiry", 0),
    ],
    "A2b: an unknown partition may begin anywhere": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("recreate", 0, 0, 2), ("batch", 0, 0),
        ("copy", 0, 0), ("heal", 0, 0), ("restore", 0, 0),
    ],
    "A9: the base of a record is not looked at": [
        ("setup", 0, 0, 0, 0, 0, 0), ("letters", 0, 1), ("letters", 7, 1), ("produce", 0, 2, 0), ("batch", 0, 0),
        ("produce", 0, 0, 0), ("crash", 0, 0, 23, 0), ("letters_expiry", 0, 0), ("produce", 7, 2, 0), ("batch", 7, 0),
        ("letters_expiry", 0, 0),
    ],
    "a snapshot says the id alone": [
        ("setup", 0, 0, 0, 0, 0, 0), ("run", 0, 0), ("lose_journal", 4), ("run", 0, 1), ("same_run", 0, 0, 0),
    ],
    "C5: what others build on a snapshot while its writer looks does not count": [
        ("setup", 0, 0, 0, 0, 3, 0), ("produce", 0, 1, 1), ("batch", 0, 0), ("pause_at", 0, 0, 15, 1),
        ("foreign_append", 0),
    ],
    "files of which rows may have been made together are filtered": [
        ("setup", 1, 0, 0, 1, 3, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("lose_checkpoint", 0),
    ],
    "messages of which rows may have been made together are filtered": [
        ("setup", 0, 1, 0, 1, 3, 0), ("recreate", 0, 0, 1), ("batch", 0, 0), ("lose_checkpoint_behind", 0),
    ],
    "a word for the first of several records is one for all": [
        ("setup", 4, 1, 0, 0, 0, 0), ("produce", 0, 1, 0), ("batch", 0, 0), ("batch", 0, 0), ("produce", 0, 0, 0),
        ("pause_at", 0, 0, 15, 0), ("copy", 1, 0), ("tag", 0), ("compaction",), ("foreign_append", 0), ("expiry", 0),
        ("restore", 0, 0),
    ],
    "what can never be published behind the first name is not given up": [
        ("setup", 213, 1, 0, 0, 0, 0), ("produce", 0, 1, 0), ("batch", 0, 0), ("foreign_prepare", 0),
        ("pause", 0, 0, 0), ("wake",), ("rename_at_once", 0), ("produce", 0, 0, 0), ("crash", 0, 0, 12, 0),
        ("rollback", 157, 796),
        ("foreign_rename",),
    ],
    "a torn mark is not given up": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("batch", 0, 0), ("produce", 0, 4, 0),
        ("batch", 0, 0), ("crash", 0, 0, 0, 0), ("batch", 0, 0), ("power",), ("rollback", 0, 0), ("foreign_append", 0),
        ("expiry", 0),
    ],
    "replays of a copied checkpoint are not asked for under another name": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("rename_at_once", 0),
        ("copied_job", 0, 0, 1, 0),
    ],
    "a name that was replaced before it was read back is lost": [
        ("setup", 0, 0, 819, 0, 0, 0), ("crash", 931, 217, 759, 799), ("produce", 0, 0, 0), ("pause_at", 0, 0, 15, 0),
        ("copy", 1, 0), ("foreign_prepare", 0), ("crash", 0, 0, 20, 0), ("foreign_overwrite", 0, 0),
        ("restore", 959, 0), ("foreign_rename",), ("foreign_append", 805), ("foreign_append", 0), ("copy", 2, 0),
        ("restore", 1, 0),
    ],
    "dead letters: what the first name had may be anywhere behind another writer's snapshot": [
        ("setup", 0, 1, 0, 0, 0, 0), ("letters", 0, 1), ("produce", 0, 1, 0), ("batch", 0, 0), ("foreign_prepare", 0),
        ("pause", 0, 0, 0), ("wake",), ("rename_at_once", 0), ("produce", 0, 0, 0), ("crash", 0, 0, 12, 0),
        ("foreign_rename",), ("expiry", 0),
    ],
    "a line that was replaced twice goes on": [
        ("setup", 1, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("produce", 0, 1, 0),
        ("lost_race", 0, 0, 0, 2), ("foreign_append", 0), ("pause", 0, 0, 84), ("rollback", 0, 0), ("batch", 0, 0),
    ],
    "nobody says that a checkpoint may be older than its topic": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("recreate", 0, 0, 0), ("batch", 0, 0),
        ("copy", 0, 0), ("heal", 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("restore", 0, 0),
    ],
    "a table takes another one's mark of a run away": [
        ("setup", 4, 0, 0, 0, 0, 0), ("job_pause", 0, 0, 161), ("drop", 0), ("same_run", 0, 0, 0),
    ],
    "what another name has lost comes again although the first one has gone on": [
        ("setup", 0, 1, 0, 1, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("rename_at_once", 0), ("produce", 0, 0, 0),
        ("rename_at_once", 0), ("copy", 0, 0), ("rename", 0), ("batch", 0, 0), ("lose_checkpoint", 0), ("batch", 0, 0),
        ("rollback", 0, 0), ("rename_at_once", 0), ("restore", 0, 0), ("batch", 0, 0), ("rename", 0),
    ],
    "a mark counts for another table": [
        ("setup", 1, 1, 0, 1, 0, 1), ("produce", 0, 1, 0), ("batch", 0, 3), ("produce", 0, 1, 0), ("batch", 0, 3),
        ("drop", 1), ("foreign_append", 0), ("foreign_append", 0), ("foreign_append", 0), ("foreign_append", 0),
        ("expiry", 0), ("rename", 0), ("produce", 0, 1, 0), ("batch", 0, 0), ("heal", 0, 0), ("batch", 0, 0),
        ("heal", 0, 1), ("batch", 0, 0),
    ],
    "files without their record's manifest are not in the table": [
        ("setup", 0, 1, 0, 0, 0, 0), ("letters", 0, 1), ("produce", 0, 2, 0), ("batch", 0, 0), ("pause", 0, 0, 0),
        ("wake",), ("lost_race", 0, 0, 0, 1), ("run", 0, 0), ("expiry", 0),
    ],
    "a snapshot that is gone names nothing": [
        ("setup", 4, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("pause_at", 0, 0, 15, 0), ("copy", 1, 0),
        ("crash", 0, 0, 20, 0), ("tag", 0), ("overwrite_run", 0), ("foreign_append", 0), ("expiry", 0), ("copy", 2, 0),
        ("restore", 1, 0), ("restore", 0, 0),
    ],
    "where another table has a mark there is none for this one": [
        ("setup", 4, 0, 0, 0, 0, 0), ("job_pause", 0, 0, 161), ("run", 0, 1), ("drop", 0), ("run", 1, 0), ("wake",),
        ("run", 0, 0), ("run", 0, 1),
    ],
    "A2: a topic recreated within a run is recorded": [
        ("setup", 0, 1, 0, 1, 0, 1), ("produce", 0, 1, 0), ("batch", 0, 3), ("produce", 0, 1, 0), ("pause", 0, 3, 0),
        ("recreate", 0, 1, 4), ("wake",), ("batch", 0, 3), ("heal", 0, 0), ("batch", 0, 3),
    ],
    "one word accepts each file that comes later": [
        ("setup", 1, 0, 0, 1, 0, 0), ("run", 1, 1), ("run", 1, 1), ("compaction",), ("expiry", 0), ("files_anew", 0),
        ("same_run", 0, 0, 2),
    ],
    "a run that is accepted as seen had no rows": [
        ("setup", 0, 0, 0, 1, 0, 0), ("run", 0, 1), ("run", 2, 1), ("expiry", 0), ("lose_journal", 4),
        ("same_run", 0, 0, 1),
    ],
    "files that an earlier name has read are new": [
        ("setup", 1, 6, 1, 1, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 3), ("rename", 0), ("produce", 0, 0, 0),
        ("batch", 0, 3), ("heal", 0, 1), ("batch", 0, 3), ("rename", 0), ("produce", 0, 0, 0), ("batch", 0, 3),
        ("heal", 0, 1), ("batch", 0, 3), ("lose_checkpoint", 0), ("batch", 0, 3),
    ],
    "a first snapshot whose data files went meanwhile stays": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("crash", 0, 0, 3, 0), ("copy", 2, 0),
        ("foreign_prepare", 0), ("pause", 0, 0, 605), ("restore", 0, 0),
    ],
    "a hint stays in a table that was created anew": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("pause_at", 0, 0, 16, 0), ("drop", 0),
    ],
    "a snapshot behind a hole that a rollback made stays": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 4, 0), ("batch", 0, 0), ("foreign_append", 0),
        ("pause_at", 0, 0, 15, 0), ("rollback", 0, 0),
    ],
    "a batch with other positions is the published one of an earlier name": [
        ("setup", 1, 1, 0, 0, 0, 0), ("produce", 0, 4, 0), ("batch", 0, 0), ("copy", 0, 0), ("batch", 0, 0),
        ("restore", 0, 0), ("produce", 0, 0, 0), ("rename", 0), ("retention", 0, 0), ("batch", 0, 1),
    ],
    "a state that was published alone is one with its rows": [
        ("setup", 1, 0, 0, 0, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 0), ("produce", 0, 1, 0),
        ("lost_race", 0, 0, 1, 2), ("batch", 0, 0), ("rollback", 2, 0), ("foreign_append", 0), ("expiry", 0),
    ],
    "rows went with the state that had been published alone": [
        ("setup", 1, 0, 2, 0, 0, 0), ("produce", 0, 1, 0), ("batch", 0, 0), ("produce", 0, 0, 0),
        ("lost_race", 0, 0, 0, 2), ("batch", 0, 0), ("rollback", 2, 0), ("foreign_append", 0), ("expiry", 0),
    ],
    "a state that is found where the mark was torn is one with its rows": [
        ("setup", 1, 1, 1, 1, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 0), ("produce", 0, 0, 0),
        ("lost_race", 0, 1, 2, 2), ("batch", 0, 0), ("power",), ("batch", 0, 0), ("rollback", 2, 0),
        ("foreign_append", 0), ("expiry", 0),
    ],
    "what is there without its state is given up unasked": [
        ("setup", 1, 0, 2, 1, 0, 0), ("produce", 0, 1, 0), ("batch", 0, 0), ("produce", 0, 0, 0),
        ("lost_race", 0, 0, 0, 2), ("batch", 0, 0), ("rollback", 2, 0), ("foreign_append", 0), ("expiry", 0),
        ("produce", 0, 0, 0), ("batch", 0, 0), ("heal", 0, 1), ("heal", 0, 1),
    ],
    "a word for a batch of one topic is one for the same batch of another": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("stop", 0), ("lose_checkpoint_behind", 0),
        ("batch", 0, 0), ("heal", 0, 0), ("recreate", 0, 0, 0),
    ],
    "what a new checkpoint has written under the first name comes again": [
        ("setup", 4, 0, 0, 1, 0, 3), ("produce", 0, 3, 0), ("batch", 0, 0), ("produce", 0, 2, 0), ("batch", 0, 0),
        ("rename_at_once", 0), ("produce", 0, 2, 0), ("batch", 0, 0), ("stop", 0), ("rollback", 0, 0),
        ("lose_checkpoint", 0), ("produce", 0, 2, 0), ("batch", 0, 0), ("heal", 0, 0), ("batch", 0, 0), ("heal", 0, 0),
        ("batch", 0, 3), ("batch", 0, 3), ("rename", 0), ("produce", 0, 1, 0), ("batch", 0, 0),
    ],
    "the first name of a later record is not known when it is given up": [
        ("setup", 4, 0, 0, 0, 0, 3), ("produce", 0, 3, 0), ("batch", 0, 0), ("produce", 0, 2, 0), ("batch", 0, 0),
        ("rename_at_once", 0), ("produce", 0, 2, 0), ("batch", 0, 3), ("produce", 0, 2, 0), ("batch", 0, 3),
        ("produce", 0, 2, 0), ("batch", 0, 3), ("produce", 0, 2, 0), ("batch", 0, 3), ("stop", 0), ("rollback", 0, 0),
        ("lose_checkpoint", 0), ("produce", 0, 2, 0), ("batch", 0, 0), ("heal", 0, 0), ("batch", 0, 0), ("heal", 0, 0),
        ("batch", 0, 3),
    ],
    "where all was given up under a later name a new checkpoint writes everything": [
        ("setup", 4, 0, 0, 0, 0, 3), ("produce", 0, 3, 0), ("batch", 0, 0), ("produce", 0, 2, 0), ("batch", 0, 0),
        ("rename_at_once", 0), ("produce", 0, 2, 0), ("batch", 0, 3), ("produce", 0, 2, 0), ("batch", 0, 3),
        ("produce", 0, 2, 0), ("batch", 0, 3), ("produce", 0, 2, 0), ("batch", 0, 3), ("stop", 0), ("rollback", 0, 0),
        ("lose_checkpoint", 0), ("produce", 0, 2, 0), ("batch", 0, 0), ("heal", 0, 0), ("batch", 0, 0), ("heal", 0, 0),
        ("batch", 0, 3),
    ],
}
