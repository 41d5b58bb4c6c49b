"""Defects of tests/sabotage of which nobody has shown that no walk can find them, and that walks find seldom or never.

The soak tries them as well, and reports what it finds (``test_teeth.py``). ``not_found.py`` has those that no walk can
find.
"""

from tests.walks.elsewhere.shown import ELSEWHERE
from tests.walks.shown import SHOWN

# As of 1,500 drawn walks and 5,600 bred ones, 6,000 drawn ones of seed 47, and, for each defect that is named here,
# some thousand walks that were bred from those which come to its place. Those of S3 say how many they are.
SELDOM: dict[str, tuple[str, ...]] = {
    "Walks come to its place, and those that were tried end as they should.": (
        "C5: another writer's snapshot is taken back", "letters: what is there under a later number is not",
        "a batch without rows stops another name", "B8: giving up claims nothing",
        "a journal's mark outlives a rollback for another name",
        "without the first name's mark nothing says how far a table may go back",
        "without a mark a new name does not say where its tables were",
    ),
    "Drawn walks come to its place seldom or never: it takes a replaced snapshot, a compaction, a rollback and expiry "
    "in one order, "
    "and more.": (
        "rows that were there are not looked for when a group is published",
        "a state alone after a reply that was lost is one with its rows",
        "a state alone whose snapshot was replaced is published with its rows",
        "a mark of an earlier publishing is one of this", "a mark that does not say where is one with the rows",
        "what a user has seen has its rows in that snapshot", "dead letters do not come again with a state alone",
        "what is seen is the end of what was replaced",
        "starting_offsets takes what went with a state that was published alone for gone",
        "a start does not find out where what was published again is", "what was to come again is not given up",
        "a mark that was to be replaced stays where no snapshot tells",
        "a table of a lost journal that is put back tells its own last batch alone",
    ),
    # As of 240 drawn walks of one table and 120 of several on a disk, 120 and 60 on S3, of seed 1, none of them bred.
    "It takes two accidents within one attempt on S3, of which the second one meets what the first one has left.": (
        "what an older copy of the journal takes for nobody's goes",
        "what an attempt began on is told by its number alone",
        "what a paused driver may yet record is swept",
        "what one of several tables names goes from the others", "what one of several tables cannot tell goes",
        "a dead attempt's files keep its table from being created",
        "files of another query keep a table from being created",
        "a look at several tables counts however long ago", "a look at dead letters counts however long ago",
        "a table says that dead letters are there before that is known",
        "a driver that is superseded gives advice", "an owner that is gone since the listing ends a start",
        "lists that were written behind another snapshot are used",
        "a snapshot is marked before it is known to have come in time",
        "what is to be done beside the next batch is never done",
        "lists of a snapshot made after a sleep are not looked for",
        "a snapshot made after a sleep is checked beside the next batch",
    ),
    "A walk found it once, and does not any more; nor does one of some hundred that were bred from that one.": (
        "a checkpoint that begins anew is the one that is adopted",
        "a mark counts although all of history is there",
        "A3: what cannot be compared is the same",
        "what a user has seen is asked for in the snapshots",
        "after a give_up the next record forgets the name before",
        "the first name's mark counts whatever has become of its snapshot",
        "a new name goes on whatever went behind another writer's snapshot",
    ),
    "Walks have expiry, cleaning and the deletion of tags by our own hand as events since these defects came; which of "
    "them walks find has not been tried for long. Consumers, branches and the background they do not have.": (
        "tags of the table keep nothing",
        "what is in branches keeps nothing",
        "a consumer keeps nothing",
        "the newest state of applications expires",
        "files that a pending record names go",
        "snapshots since a pending record was made expire",
        "a record that comes again needs nothing",
        "journals of several tables are not asked",
        "the journal of dead letters is not asked",
        "what is retained is not asked again when the snapshots are gone",
        "no list is durable before the first file goes",
        "what a dead expiry has left is not finished",
        "a snapshot that a rollback went back to stays gone",
        "a tag is not looked after when it is made",
        "files of records that are pending are orphans",
        "files of records that are being made are orphans",
        "orphans of any age go",
        "a journal that is not found has nothing pending",
        "an error of maintenance in the background is not told",
        "a query that stops soon never looks after its table",
    ),
    "A walk finds it, as ``shown.py`` shows; drawn ones come there seldom.": tuple(
        name for name in SHOWN if name not in ELSEWHERE
    ),
}
