"""Defects of tests/sabotage that walks do not find, and why. The soak asks walks for all others (``test_teeth.py``)."""

# Parts that no walk in memory goes through; those of ``spark`` the real walks go through.
ELSEWHERE = ("spark/", "storage/s3", "storage/hdfs", "storage/calls.py", "locks/")

REASONS: dict[str, tuple[str, ...]] = {
    "A guard behind it does the same a moment later: the fence of the snapshot's own look, or the record's number.": (
        "no look at the owner before a batch", "publishing without the fence", "a second query of the name is let in",
    ),
    "A process that fails ends, and lets go of all that it held.": ("a claim that fails holds the application",),
    "It saves work, or asks the store again: what a reader sees is the same.": (
        "files of a restored record may be in the table", "B1: a folder is looked at in each batch", "a table that another one makes between two looks is a strange folder",
    ),
    "It leaves files that nobody names; a walk looks at what readers see.": ("a failed batch leaves its files", "C1: branches are not looked at"),
    "It makes an error of what is well, or a question of one that has an answer, where rows stay right: it is about a program that a walk does not have: "
    "results that change, several counts, conditions with dates, folders that grow.": (
        "A13: results that change are appended", "a run without one count is counted", "a run is asked for because its folder has grown",
        "dates of a run's conditions do not count", "runs that are never repeated are asked for one by one", "an overwrite replaces what its partitions do not say",
    ),
    "It takes a part out of a word, so that it answers another question as well: an operator gives the word of his last message, and takes it away.": (
        "A3: any token takes a query for the same", "one word for all that comes under a run's id", "one word for every query of a copied checkpoint",
        "the word for all runs outlives its journal", "the word for a new application outlives its journal", "a lost table is left out by any word",
    ),
    "State of a stateful query is Spark's; a walk says of a query that it has some, and computes none.": (
        "A4: a stateful query may filter", "A4: the replay of a stateful query is not computed",
    ),
    "No query of a walk reads one topic by two sources.": (
        "A8: sources of one topic share a record", "A8: rows of several sources are filtered by one position", "A8: starting_offsets takes one source's position for all",
    ),
    "A walk has one thread; a second call comes at an I/O call of the first one, which cannot wait for it.": (
        "A1: one of two calls at one time is recorded", "A1: a later batch at one time takes the first one's rows away",
        "A1: a call beside one that is recorded does not wait",
    ),
    "Nothing is damaged in a walk but by a power failure.": (
        "another application's damage stops all of a table", "the last record must be readable for its mark", "runs of damaged records stay published",
        "a journal knows the runs of damaged records", "a journal of files forgets them with a damaged record", "a hole in the files goes unnoticed",
        "A14: sizes of lists are not compared", "A14: what expires meanwhile is an alarm",
    ),
    "An operator's words and paths are right, and he reads what a command says of one run.": (
        "a mistyped path has nothing to give up", "only the first run that is given up is named",
    ),
    "A retired name is one that nobody uses any more, of one table.": (
        "an application is retired without a lock", "a query into several tables with pending rows is retired",
    ),
    "All drivers of a walk are of one version, and nothing was there before.": (
        "version 2 looks like version 1 to earlier code", "letters: earlier code publishes a part of the record", "letters: an earlier name is known by its journal alone",
    ),
    "What is damaged or pending is told by queries before ``verify`` is asked, at rest.": (
        "verify takes a dropped table's records for this one's", "B8: verify does not look for files of pending records",
    ),
    "Schemas stay, as do the table's options.": ("C4: files are published without their schema", "B1: options of a commit are read after the record"),
    "A driver of a walk writes its rows itself: no task hands files over, and no position stands in a row.": (
        "B4: what tasks say is taken for true", "B4: sizes of what tasks hand over are not compared", "A7: rows are not compared with their batch",
        "A7: nulls are overlooked beside other rows", "A7: the end of a batch belongs to it", "A7: a topic's partitions reach into the next topic's",
        "A7: sources without positions are asked for them", "A7: rows outside are counted and go on",
    ),
    "The store of a walk takes every name, has one device, and never runs out of room.": (
        "B1: names may be as long as they like", "B1: rows without a folder are no dead letters", "B1: the writer asks for no folder before it writes",
        "B1: files grow beyond what the store copies", "B1: a file that is too large is recorded", "B1: without room publishing fails for good",
        "B1: a new folder is durable some time later",
    ),
    "Files as positions are put together when there are many more of them than a walk has.": (
        "files of pruned records are forgotten", "files of records before those that are given up are forgotten", "files that a larger one hides come to light",
        "files that count are kept with those that do not",
    ),
    "Rows of a walk have three plain columns, of which each is there once.": (
        "a column may be there twice", "a table of several may take a name twice", "B7: nested arrays keep missing offsets",
        "nulls inside of columns are not looked for", "what a null row has below it counts as null", "marks of nulls stay where the type has none",
        "a column that is left out has marks of nulls inside", "hexadecimal text is the bits of a number",
        "a decimal comes round when it gets a larger scale", "a text of too many digits comes round to another decimal",
        "a bound that is not UTF-8 ends with Python's own error", "a partition value that is not UTF-8 ends with Python's own error",
        "a row with such a partition value is no dead letter", "a name of a table that is not UTF-8 is any name",
    ),
}
