"""Defects of tests/sabotage that walks do not find, and why. The soak asks walks for all others (``test_teeth.py``).

``REASONS`` says why no walk can find a defect. ``found_seldom.py`` has those for which nobody has shown that.
"""

# Parts that no walk in memory goes through. The real walks go through those of ``spark``.
_SINKS = ("transactions/", "directory/", "databases/", "kafka/")
_STORES = ("s3", "hdfs", "calls.py", "database.py")
ELSEWHERE = ("spark/", "locks/", *(f"storage/{name}" for name in _STORES), *(f"sinks/{name}" for name in _SINKS))

REASONS: dict[str, tuple[str, ...]] = {
    "It is about options as an object, a call after the run was closed, or the sink of an author's own, which walks do "
    "not have.": (
        "names of options as an object are taken as they are",
        "a closed run of the usual kind goes on", "a folder that has lost its identity gets another one",
    ),
    "It is about a destination that is no table, into which those walks that are asked do not go (``elsewhere/``).": (
        "what was committed is given up with its note", "a record that could be published is given up",
        "verify of a sink is silent of applications that have ended",
        "what another application has pending is damage",
    ),
    "A guard behind it: who reads the record finds no part of several tables in it, and ends with a KeyError.": (
        "the journal of a table that is gone is of several tables",
    ),
    "A guard behind it does the same a moment later: the fence of the snapshot's own look, or the record's number.": (
        "no look at the owner before a batch", "publishing without the fence", "a second query of the name is let in",
        "an epoch that a new journal gives again is ownership", "a taken record number is overwritten",
    ),
    "A guard behind it: whoever slept looks, besides the names of its manifests, whether all is there that its "
    "snapshot names.": (
        "a snapshot whose lists alone are there stays",
    ),
    "A guard behind it: what the snapshot names has gone with the table, and one that names no file adds no row.": (
        "a snapshot stays in a table that was created anew",
    ),
    "A guard behind it: the look for data files reads the manifests that name them.": (
        "A14: manifests are not looked for at a start",
    ),
    "A guard behind it: the table for dead letters refuses the next ones, since it has some of a record that the table "
    "does not know.": (
        "letters: their table is looked at when some come", "letters: give_up does not see them",
    ),
    "A guard behind it: the query, which comes under its second name with nothing recorded there, is told first where "
    "the first name "
    "ends.": (
        "the first name does not tell where to begin after records were given up",
    ),
    "It gives up more than it must, and says so: those rows are read again.": (
        "B8: records before the bad one are given up too",
    ),
    "It asks what it could know, after a table was dropped or rolled back, or records were given up; a walk lets it "
    "ask, and answers.": (
        "letters: two tables are one", "a journal of which all was given up is taken for an older copy",
        "one file that is there is not a proof for all of its record",
        "another name takes rows for lost whose state has gone",
    ),
    "Rows of a walk are numbers, which every version of a program makes alike; so it does not see which version's are "
    "there.": (
        "files of another query are taken as seen",
    ),
    "The operator of a walk accepts as new only what is not there, and writes no row twice on purpose.": (
        "files of an earlier query count after accept_as_new",
    ),
    "Files of a walk are not written again under their names, and their folder is not moved.": (
        "a path alone is a file",
    ),
    "A process that fails ends, and lets go of all that it held.": (
        "a claim that fails holds the application",
    ),
    "A query of a walk that fails is started again, which publishes what is pending.": (
        "a call that is repeated behind its record publishes nothing",
        "an error of the clean-up hides why a batch ended",
    ),
    "An operator of a walk gives a word in place of the one before, unless the message says both.": (
        "a word of an earlier accident hides the answer behind it",
    ),
    "It saves work, or asks the store again: what a reader sees is the same.": (
        "files of a restored record may be in the table", "B1: a folder is looked at in each batch",
        "a table that another one makes between two looks is a strange folder",
        "who owns the application is asked for each of several tables",
    ),
    "It leaves files that nobody names; a walk looks at what readers see.": (
        "a failed batch leaves its files", "C1: branches are not looked at",
        "B3: what no record can name any more stays", "what another epoch staged for a record's number stays",
        "an incomplete attempt of many rows stays", "writers do not say where their files come to be",
        "writers of several tables do not say where their files come to be",
        "writers do not say where a table's metadata comes to be", "what is left where a table was dropped stays",
        "what a failed attempt announced is forgotten", "a restart that ends with an error leaves its lists",
        "lists that were written for another base stay", "owners of long ago stay",
        "a table is created over files of nobody",
    ),
    "It makes an error of what is well, or a question of one that has an answer, where rows stay right: it is about a "
    "program that a "
    "walk does not have: results that change, several counts, conditions with dates, folders that grow.": (
        "A13: results that change are appended", "a run without one count is counted",
        "a run is asked for because its folder has grown", "dates of a run's conditions do not count",
        "runs that are never repeated are asked for one by one", "an overwrite replaces what its partitions do not say",
        "a batch of old messages alone is asked for its rows", "the word for rows takes the one for the query away",
        "files that a log tells were planned at another time",
    ),
    "Any call of a walk may fail and end the run, and its operator starts the query again.": (
        "an announcement of the next attempt ends this one",
    ),
    "On a walk's S3 a minute passes before anything takes a table back or takes away what a driver needs: what was "
    "seen before does not count by then.": (
        "answers of a look are kept when the next look has failed",
        "some answers of an earlier look count beside new ones",
    ),
    "It takes a part out of a word, so that it answers another question as well: an operator gives the word of his "
    "last message, and "
    "takes it away.": (
        "A3: any token takes a query for the same", "one word for all that comes under a run's id",
        "one word for every query of a copied checkpoint", "the word for rows outlives its replay",
        "the word for all runs outlives its journal", "the word for a new application outlives its journal",
        "a lost table is left out by any word",
    ),
    "The sinks of a walk are Paimon tables.": (
        "what the name before has lost is there", "another name's record that is not published is not there",
        "commands for tables take any folder", "an option that means nothing to a sink is ignored",
        "the folder of a batch goes before its transactions are aborted", "a lost identity is made anew",
        "a folder with a journal alone is a new one",
        "a manifest that was made by somebody else is not seen",
    ),
    "Columns of a walk are always the same.": (
        "a column that is NOT NULL needs an option alone", "an option changes the type of a partition column",
        "an option changes the key of a map",
    ),
    "A walk spells each place in one way.": (
        "a second sink by another spelling is a restart", "a path that was cut is a local folder",
        "a start that failed is in the way of its retry",
    ),
    "Files of a walk keep their times and stay in their folder, and its records are of one version.": (
        "a file without its time is new", "files that are asked for are left out",
        "what is said of some files is said of the whole batch",
        "what is said of some files is said of all that come later", "one answer about files takes the other one away",
        "a file that was moved is new data", "moved files beside known ones are new data",
        "shorter entries of files are taken for longer ones",
    ),
    "Every batch of a walk says when it was planned, and each of its sources has a log or counts its steps.": (
        "what earlier code has recorded was planned at another time", "a position that is no step needs a time as well",
    ),
    "A guard behind it: the next batch of that checkpoint does not follow what is recorded, under whichever name.": (
        "another name goes on from what was planned once more",
    ),
    "A function of a walk does the same with each batch.": (
        "what was done with a run's first batch is done with all",
    ),
    "State of a stateful query is Spark's; a walk says of a query that it has some, and computes none.": (
        "A4: a stateful query may filter", "A4: the replay of a stateful query is not computed",
    ),
    "No query of a walk reads one topic, or one folder, by two sources.": (
        "what one source has read the other has read too", "A8: sources of one topic share a record",
        "A8: rows of several sources are filtered by one position",
        "A8: starting_offsets takes one source's position for all", "sources that begin apart begin at one place",
    ),
    "A walk has one thread; a second call comes at an I/O call of the first one, which cannot wait for it.": (
        "A1: one of two calls at one time is recorded", "A1: a later batch at one time takes the first one's rows away",
        "A1: a call beside one that is recorded does not wait",
    ),
    "Nothing is damaged in a walk but by a power failure.": (
        "another application's damage stops all of a table", "the last record must be readable for its mark",
        "runs of damaged records stay published", "a journal knows the runs of damaged records",
        "a journal of files forgets them with a damaged record", "a hole in the files goes unnoticed",
        "A14: sizes of lists are not compared", "A14: what expires meanwhile is an alarm",
        "what another writer has added is not read", "the newest manifest is not read at a start",
        "a column that a file lacks is null", "A14: a running query looks for no manifest",
        "C1: what cannot be read names nothing", "a late snapshot goes although others have built on it",
    ),
    "An operator's words and paths are right, and he reads what a command says of one run.": (
        "a mistyped path has nothing to give up", "only the first run that is given up is named",
    ),
    "A retired name is one that nobody uses any more, of one table.": (
        "an application is retired without a lock", "a query into several tables with pending rows is retired",
        "an application with pending rows is retired", "one table of several retires alone",
        "a name retires while the next one has to look for it", "what was to come again is retired",
        "what another name goes on from is retired while that is to come again",
        "records that a retirement took are told of as lost",
        "a look that finds records lost does not ask whose the journal is",
    ),
    "All drivers of a walk are of one version, and nothing was there before.": (
        "version 2 looks like version 1 to earlier code", "letters: earlier code publishes a part of the record",
        "letters: an earlier name is known by its journal alone", "letters: an earlier name is forgotten",
        "letters: of two names the table's own counts",
        "an overwrite of earlier code is published over what has expired",
        "a record of files with final names looks like one of earlier code",
        "a record of dead letters with final names looks like one of earlier code",
        "a record of several tables looks like one that earlier code can publish",
    ),
    "What is damaged or pending is told by queries before ``verify`` is asked, at rest.": (
        "verify takes a dropped table's records for this one's",
        "B8: verify does not look for files of pending records",
    ),
    "Schemas stay, as do the table's options.": (
        "C4: files are published without their schema", "B1: options of a commit are read after the record",
    ),
    "A driver of a walk writes its rows itself: no task hands files over, and no position stands in a row.": (
        "B4: what tasks say is taken for true", "B4: sizes of what tasks hand over are not compared",
        "A7: rows are not compared with their batch", "A7: nulls are overlooked beside other rows",
        "A7: the end of a batch belongs to it", "A7: a topic's partitions reach into the next topic's",
        "A7: sources without positions are asked for them", "A7: rows outside are counted and go on",
    ),
    "The store of a walk takes every name, has one device, and never runs out of room.": (
        "B1: names may be as long as they like", "B1: rows without a folder are no dead letters",
        "B1: the writer asks for no folder before it writes", "B1: files grow beyond what the store copies",
        "B1: a file that is too large is recorded", "B1: without room publishing fails for good",
        "B1: a new folder is durable some time later", "a snapshot for which there is no room has given no answer",
    ),
    "Files as positions are put together when there are many more of them than a walk has.": (
        "files of pruned records are forgotten", "files of records before those that are given up are forgotten",
        "files that a larger one hides come to light", "files that count are kept with those that do not",
    ),
    "Rows of a walk have three plain columns, of which each is there once.": (
        "a column may be there twice", "a table of several may take a name twice",
        "B7: nested arrays keep missing offsets", "nulls inside of columns are not looked for",
        "what a null row has below it counts as null", "marks of nulls stay where the type has none",
        "a column that is left out has marks of nulls inside", "hexadecimal text is the bits of a number",
        "a decimal comes round when it gets a larger scale", "a text of too many digits comes round to another decimal",
        "a bound that is not UTF-8 ends with Python's own error",
        "a partition value that is not UTF-8 ends with Python's own error",
        "a row with such a partition value is no dead letter", "a name of a table that is not UTF-8 is any name",
    ),
    "Another guard asks the same: a writer that slept looks whether all is there that its snapshot names, and one that "
    "did not has "
    "met no other table; what the table for dead letters has of a number is looked at before the number is recorded; "
    "the fence is asked after the newest state was read.": (
        "a higher epoch in the table fences nobody", "a snapshot on one of another table stays",
        "letters: a number that was given up is there",
    ),
    "It asks what has an answer, or takes back what others hold as well: rows stay right, and the accident is a cause "
    "of the question.": (
        "C5: what is built on a snapshot does not count", "letters: what is retained whole cannot be told",
        "what others built on before it was replaced is gone",
        "what others built on the first name's snapshot does not count", "rows made of old messages alone are refused",
        "a table may not go back behind what the first name's mark says",
        "a run that has no rows any more is another one",
    ),
    "No function of a walk calls sinks of two names.": (
        "sinks of one function are earlier names", "a sink that joins later begins where it likes",
    ),
    "The store of a walk is like a disk: a successor's sweep takes what a sleeper has prepared, so that its record "
    "cannot come.": (
        "B3: an earlier driver's record stops its successor",
    ),
    "What it doubles may be doubled: of a table that went back alone the dead letters come again, under another name "
    "as the error "
    "says.": (
        "letters: their table may know more",
    ),
    "A driver of a walk is paused, or one of its calls fails, and never both in one batch: so no snapshot that others "
    "have built on "
    "gave its writer no answer.": (
        "C1: a lost try's manifests go though others built on them", "C2: a taken name is not read back",
    ),
    "A rollback of a walk leaves nothing standing above the snapshot that it goes back to.": (
        "what stands above the newest snapshot is the table's",
    ),
    "Tables of a walk keep their names and their paths.": (
        "a table that got another name with the query has two parts",
        "a table whose path was changed with the name is missed",
    ),
    "Spark's logs of a walk are whole.": (
        "a log that Spark has deleted is another one",
    ),
    "A guard behind it: positions tell the same; those of a folder count its batches, and an earlier batch of a topic "
    "overlaps what "
    "is recorded.": (
        "batches may be left out", "another name goes on from a batch before the last one",
        "another name goes on over files of which batches are missing",
    ),
    "A guard behind it: the next start finds the table lost by the journal, and says which ways on there are with "
    "several tables.": (
        "a lost table of several is told as one table's",
    ),
    "A guard behind it: publishing a table's part asks the same of what the table should have, after the record.": (
        "a table that went back under the query is written",
    ),
    "It says less than is known; the operator of a walk looks into the table then, or goes the other way that the "
    "message names.": (
        "a name that ends elsewhere than was said is not told",
    ),
    "A guard behind it: what is given up is read again, from where its first name says once that was started.": (
        "a query with another name is not sent to its first one",
    ),
    "The operator of a walk goes the other way that the message names when one leads back to where he was.": (
        "a query is sent to a first name whose journal is lost",
        "what comes behind another name's records keeps them out",
        "what comes before a record that waits for another name waits too", "names in a ring are sent to each other",
        "another name does not believe the first one that has found its record",
        "another name begins behind more than the first one's record",
        "a group waits for what another name has to publish before its last record",
    ),
    "Records of a walk are lost whole, or torn while they are written; none is damaged later.": (
        "a give_up of what cannot be read forgets the name before",
    ),
    "A query of a walk has two names, which take turns, and a name that has gone on is retired by nobody.": (
        "a name of which the table says nothing is asked where to begin",
        "the first name is retired although nothing is behind it",
    ),
    "No other program takes a name of a walk that a query has had before.": (
        "whoever has the first name by now has the query's rows",
        "a number that was given up is the record that another name goes on from",
    ),
    "What was rolled back is owed again, and its operator would let it come again: done without a question it ends "
    "alike.": (
        "a rollback is not noticed",
    ),
    "Whoever calls starting_offsets in a walk has started the query before: what a rollback took is told, or is there "
    "again, by then.": (
        "starting_offsets counts what a rollback has taken",
        "starting_offsets counts what went behind another writer's snapshot",
        "starting_offsets takes what is before a rollback and nothing names for gone",
    ),
    "No query of a walk reads a thousand topics.": (
        "a shortened id is any id", "a shortened id is another id",
        "a state of very many topics takes more than a snapshot has room for",
        "a compressed state that was altered is taken",
    ),
    "No query of a walk reads a topic beside a folder.": (
        "A2: topics beside a folder are not recorded", "a batch beside a folder may end behind the broker's offsets",
        "A2: who says that a topic beside a folder is another one goes on in its middle",
        "A2: a topic beside a folder tells where to begin after records were given up",
    ),
    "No query of a walk goes on with one table of several.": (
        "a query of one table goes by what this one has of several",
        "a query of one table leaves parts for the others behind", "a table of several whose journal is lost is whole",
        "another number is looked for than this table has of several",
        "a query of one table knows nothing of several that it says nothing of",
        "a query of one table goes on whatever has become of its part of several",
        "the first name of another kind is asked where to begin after records were given up",
        "what a table has lost of the first name is left out without a word",
    ),
    "The store of a walk refuses nobody.": (
        "a folder above that may not be looked into stops the query",
    ),
    "Sources of a walk's query keep their places, and a topic that it leaves does not come back.": (
        "A2: sources that have changed places are told each other's topics",
        "positions of an earlier name are forgotten",
    ),
    "Of a broker that tells no ids a walk asks for no row below the recorded positions, which may be another "
    "topic's.": (
        "A2: a newest offset below the record is passed over",
        "A2: an answer that comes when the topic has grown is forgotten",
    ),
    "What its operator goes on without a walk does not ask for any more, whatever comes back.": (
        "a table that was restored is left out",
    ),
    "No topic of a walk keeps its id and loses messages at its end, and its operator gives a word to the option that "
    "the message "
    "names.": (
        "A2: an answer takes a record back to where the topic ends now",
        "A2: an answer about two topics is heard for one",
        "A2: an answer is not heard beside a batch that is seen",
        "A2: an answer tells one source's positions",
        "A2: who drops a topic does not lower it",
        "A2: the next error takes an answer away",
        "A2: a new checkpoint begins behind what an answer says",
        "A2: a checkpoint older than the topic takes its record back",
    ),
    "The snapshots of a walk that replace another one add rows of their own, and change none of ours.": (
        "a snapshot that lost its line proves that a pending record is there",
        "a snapshot that lost its line proves that a record was published",
    ),
    "Drivers of a walk end before a backup takes the place of their table; one that sleeps meanwhile is told when it "
    "publishes.": (
        "a running query takes every table for its journal's",
    ),
    "A walk does not ask for rows that went with a rollback of which no snapshot tells any more.": (
        "a mark of an earlier publishing tells of this one", "another name goes on from what was to come again",
        "starting_offsets counts what was to come again",
        "another name begins where the first one's record was before it came again",
        "a mark before a rollback proves that its record is there",
    ),
}
