"""Walks of several tables that find defects which drawn walks seldom find.

Each was written, or bred from one that was written, for one guard. ``shown.py`` has them all.
"""

from tests.walks.walker import Walk

OF_SEVERAL: dict[str, Walk] = {
    "without a mark everything is there": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 3, 0), ("batch", 0, 2), ("foreign_append", 0, 0),
        ("expiry", 0, 0), ("produce", 0, 4, 0), ("batch", 0, 1), ("foreign_prepare", 0, 0), ("crash", 0, 3, 20, 0),
        ("foreign_append", 0, 0), ("foreign_rename",), ("batch", 0, 0), ("rollback", 0, 0, 0),
    ],
    "the mark of any record of a table is that of another one": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 3, 0), ("batch", 0, 2), ("foreign_append", 0, 0),
        ("expiry", 0, 0), ("produce", 0, 4, 0), ("batch", 0, 1), ("foreign_prepare", 0, 0), ("crash", 0, 3, 20, 0),
        ("foreign_append", 0, 0), ("foreign_rename",), ("batch", 0, 0), ("rollback", 0, 0, 0),
    ],
    "an older snapshot in the marked one's place is no loss": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 4, 0), ("batch", 0, 1), ("produce", 0, 4, 0), ("batch", 0, 3),
        ("foreign_prepare", 0, 0), ("batch", 0, 3), ("foreign_rename",), ("expiry", 0, 0),
    ],
    "a table that ends before the marked snapshot has it": [
        ("several", 1, 1, 1, 1, 0, 1), ("produce", 0, 4, 0), ("batch", 0, 3), ("foreign_append", 0, 0),
        ("expiry", 0, 0), ("produce", 0, 4, 0), ("produce", 0, 4, 0), ("batch", 0, 3), ("batch", 0, 3),
        ("rollback", 0, 0, 1),
    ],
    "the mark of several tables does not say where": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 2), ("foreign_append", 0, 0),
        ("expiry", 0, 0), ("produce", 0, 4, 0), ("produce", 0, 4, 0), ("batch", 0, 3), ("batch", 0, 3), ("batch", 0, 0),
        ("batch", 0, 0), ("rollback", 0, 0, 0),
    ],
    "a record repeats the last one's marks alone": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 2), ("foreign_append", 0, 0),
        ("expiry", 0, 0), ("produce", 0, 4, 0), ("produce", 0, 4, 0), ("batch", 0, 3), ("batch", 0, 3), ("batch", 0, 0),
        ("batch", 0, 0), ("rollback", 0, 0, 0),
    ],
    "a record repeats no marks": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 2), ("foreign_append", 0, 0),
        ("expiry", 0, 0), ("produce", 0, 4, 0), ("produce", 0, 4, 0), ("batch", 0, 3), ("batch", 0, 3), ("batch", 0, 0),
        ("batch", 0, 0), ("rollback", 0, 0, 0),
    ],
    "a mark of several tables that was torn stays so": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 2), ("foreign_append", 0, 0),
        ("expiry", 0, 0), ("produce", 0, 4, 0), ("produce", 0, 4, 0), ("batch", 0, 3), ("crash", 0, 3, 23, 1),
        ("batch", 0, 0), ("batch", 0, 0), ("batch", 0, 0), ("rollback", 0, 0, 0),
    ],
    "a new name has a part in the tables with rows alone": [
        ("several", 1, 1, 1, 1, 0, 1), ("produce", 0, 2, 0), ("batch", 0, 3), ("rename_at_once", 0),
        ("produce", 0, 4, 0), ("batch", 0, 3), ("drop", 0, 1),
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
        ("several", 1, 1, 1, 1, 0, 1), ("produce", 0, 2, 0), ("batch", 0, 3), ("lose_journal", 0), ("rename", 0),
        ("produce", 0, 4, 0), ("batch", 0, 3), ("heal", 0, 0), ("batch", 0, 3), ("heal", 0, 0), ("batch", 0, 3),
        ("drop", 0, 1),
    ],
    "one of several tables speaks for all of them where the journal is lost": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 4, 0), ("produce", 0, 4, 0), ("batch", 0, 0), ("rename", 0),
        ("batch", 0, 0), ("heal", 0, 1), ("batch", 0, 0), ("batch", 0, 1), ("lose_journal", 0), ("rollback", 0, 0, 0),
        ("rename_at_once", 0),
    ],
    "a journal of another past tells how far several tables are": [
        ("several", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("copy", 3, 0, 0), ("produce", 0, 0, 0),
        ("batch", 0, 0), ("copy", 1, 0, 0), ("restore", 0, 0), ("produce", 0, 1, 0), ("batch", 0, 1), ("restore", 1, 0),
    ],
    "a batch of another checkpoint is told to adopt its own number": [
        ("several", 0, 1, 0, 1, 0, 0), ("produce", 0, 0, 0), ("produce", 9, 3, 0), ("produce", 0, 4, 0),
        ("batch", 0, 1), ("batch", 0, 3), ("lose_checkpoint_behind", 0), ("batch", 0, 0), ("power",),
        ("rollback", 0, 0, 0),
    ],
    "another name goes on behind the journal, not behind the tables": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 8, 1, 0), ("produce", 0, 1, 0), ("batch", 0, 0), ("batch", 0, 0),
        ("lose_journal", 0), ("rename_at_once", 0),
    ],
    "the first start is asked for where another table says how far it was": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 4, 0), ("batch", 0, 2), ("lose_journal", 0), ("batch", 0, 0),
        ("drop", 1, 0),
    ],
    "a table that is gone is created for a new name": [
        ("several", 0, 0, 0, 0, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 0), ("rename_at_once", 0),
        ("produce", 0, 0, 0), ("batch", 0, 0), ("drop", 0, 0),
    ],
    "a mark proves that one of several tables has its part": [
        ("several", 0, 1, 0, 0, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("foreign_append", 0, 0),
        ("expiry", 0, 0), ("produce", 0, 2, 0), ("produce", 0, 4, 0), ("batch", 0, 0), ("batch", 0, 2), ("batch", 0, 3),
        ("power",), ("rollback", 0, 0, 0),
    ],
    "tables of another past than their journal are written": [
        ("several", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("copy", 3, 0, 0), ("produce", 0, 0, 0),
        ("batch", 0, 0), ("copy", 2, 0, 0), ("restore", 0, 0), ("produce", 0, 0, 0), ("batch", 0, 1), ("restore", 1, 0),
    ],
    "A2: a cluster's id is not compared": [
        ("several", 0, 0, 5, 0, 0, 0), ("half_published", 8, 0, 0), ("recreate", 9, 0, 0),
    ],
    "a pending part is published in a table that lost what was before it": [
        ("several", 1, 1, 1, 1, 0, 1), ("produce", 0, 2, 0), ("batch", 0, 3), ("produce", 0, 2, 0), ("batch", 0, 3),
        ("produce", 0, 2, 0), ("batch", 0, 3), ("produce", 0, 2, 0), ("batch", 0, 3), ("produce", 0, 2, 0),
        ("batch", 0, 3), ("produce", 0, 2, 0), ("batch", 0, 3), ("rename", 0), ("produce", 0, 2, 0), ("batch", 0, 3),
        ("heal", 0, 1), ("half_published", 0, 6, 0), ("rollback", 1, 0, 1), ("batch", 0, 3),
    ],
    "a table that cannot get its part of a record any more is not left out": [
        ("several", 0, 0, 0, 0, 0, 0), ("produce", 0, 3, 0), ("crash", 0, 0, 2, 1), ("half_published", 0, 0, 1),
        ("rollback", 0, 0, 1), ("drop", 2, 0),
    ],
    "a new name does not say where its tables had what was before": [
        ("several", 1, 1, 1, 1, 0, 1), ("produce", 0, 2, 0), ("batch", 0, 9), ("foreign_append", 0, 0),
        ("foreign_append", 0, 0), ("foreign_append", 0, 0), ("expiry", 0, 0), ("produce", 0, 2, 0), ("batch", 0, 9),
        ("produce", 0, 2, 0), ("batch", 0, 9), ("produce", 0, 2, 0), ("batch", 0, 9), ("rename", 0),
        ("produce", 0, 4, 0), ("produce", 0, 4, 0), ("produce", 0, 4, 0), ("batch", 0, 9), ("heal", 0, 0),
        ("batch", 0, 9), ("heal", 0, 1), ("crash", 0, 11, 12, 0), ("rollback", 0, 0, 1), ("batch", 0, 9),
    ],
}
