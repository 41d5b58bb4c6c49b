"""Defects of the client of S3, of the hold that ends with its query, and of files with final names at once."""

from tests.sabotage.defect import Defect

_CLIENT = "tests/storage/test_s3_client.py"
_HOLDS = "tests/e2e/test_holds.py"
_KEYS = "tests/storage/test_s3_keys.py"
_FINAL_NAMES = "tests/crash/test_final_names.py"
_ASKED_AHEAD = "tests/storage/test_asked_ahead.py"
_RESTARTS = "tests/crash/test_restarts_on_s3.py"
_STARTS = "tests/storage/test_starts_on_s3.py"
_SLEEPERS = "tests/protocol/test_sleepers.py"
_OTHER_VERSION = "tests/e2e/test_worker_daemon.py::test_tasks_of_another_version_are_told_which_one_the_driver_has"

OF_STORES = (
    Defect("S3: a body is announced, and its leave awaited", "storage/s3_client.py:_send_the_body_at_once",
           'params["headers"].pop("Expect", None)', "None", (f"{_CLIENT}::test_a_body_is_sent_without_asking_before",)),
    Defect("S3: a listing is its first page", "storage/s3_calls.py:S3Calls._pages",
           'page.get("IsTruncated", False)', "False", (f"{_CLIENT}::test_a_listing_of_several_pages_is_whole",)),
    Defect("S3: an answer that breaks off is not asked for again", "storage/s3_calls.py:S3Calls._content",
           "if not left:", "if True:", (f"{_CLIENT}::test_an_answer_that_breaks_off_is_asked_for_again",)),
    Defect("S3: an error that breaks off is an error of urllib3", "storage/s3_calls.py:S3Calls._do",
           "except HTTPError as broken:", "except ZeroDivisionError as broken:",
           (f"{_CLIENT}::test_an_error_of_the_store_that_breaks_off_is_asked_for_again",)),
    Defect("S3: a program of keys that is gone is an object that is gone", "storage/s3_client.py:failure",
           "OSError(ENOKEY, f\"fetching keys failed with {type(failed).__name__}\", path)", "failed", (_KEYS,)),
    Defect("S3: a role that is not there is an object that is not there", "storage/s3_client.py:refusal",
           "failed.operation_name not in _OPERATIONS", "False",
           (f"{_KEYS}::test_a_role_that_is_not_there_is_not_a_file_that_is_missing",)),
    Defect("S3: keys that were withdrawn are kept", "storage/s3_client.py:S3Client.renew",
           "if _has_keys(self._options):", "if True:", (_KEYS,)),
    Defect("S3: each request that is refused fetches keys", "storage/s3_client.py:S3Client.renew",
           "if self._made is None or self._made[1] is not refused:", "if self._made is None:", (_KEYS,)),
    Defect("a hold outlives its query", "spark/query/ended.py:_watch", "if run.is_over():", "if False:", (_HOLDS,)),
    # -- files that have their final names at once
    Defect("what an older copy of the journal takes for nobody's goes", "table/history/deletion.py:_is_named",
           "if manifest in names:", "if True:\n                continue\n            if False:", (_FINAL_NAMES,)),
    Defect("what a paused driver may yet record is swept", "journal/announced.py:Announcement.may_get_its_record",
           "not self.asks or any(", "any(", (_FINAL_NAMES, _SLEEPERS)),
    Defect("an incomplete attempt of many rows stays", "journal/announced.py:Announcement.may_get_its_record",
           "not self.asks or any(", "True or any(", (_FINAL_NAMES, _SLEEPERS)),
    Defect("writers do not say where their files come to be", "table/write/folders.py:Folders.announce",
           "        if new:\n", "        if False:\n", (_FINAL_NAMES,)),
    Defect("what a failed attempt announced is forgotten", "journal/staging.py:Staging.discard",
           "            self.has_more(int(match[2]), staging)\n", "            self._io.delete_tree(staging)\n", (_FINAL_NAMES,)),
    Defect("lists that were written for another base are used", "table/commit/tries.py:Looking.usable_ahead",
           "ahead.is_on(found.newest)", "True", (_FINAL_NAMES,)),
    Defect("lists that were written behind another snapshot are used", "table/commit/changes.py:Ahead.is_on",
           "newest.base_manifest_list == self.behind", "True", (f"{_RESTARTS}::test_another_application_at_any_request",)),
    Defect("a restart that ends with an error leaves its lists", "sinks/paimon/committer.py:PaimonCommitter.restoring",
           "            self._restart.clean(failed)\n", "", (f"{_RESTARTS}::test_a_second_driver_at_any_request",)),
    # -- what a start does beside its questions
    Defect("S3: a server that ignores conditions is believed", "storage/s3.py:Probe.refuses",
           "self._created == [True, False]", "True", (_STARTS,)),
    Defect("S3: what was tried out stays when the table is refused", "storage/s3.py:S3FileIO.proving",
           "            self._probe.end()\n", "", (_STARTS,)),
    Defect("a journal that begins gets no identity", "journal/identity.py:OwnIdentity.identify",
           "self._io.soon(functools.partial(self._create, self.known))", "pass", (_STARTS,)),
    Defect("an owner that is gone since the listing ends a start", "journal/owners.py:_load",
           "except FileNotFoundError:", "except ZeroDivisionError:", (_STARTS,)),
    Defect("owners of long ago stay", "journal/owners.py:Owners._claim",
           "                self._io.soon(functools.partial(self._prune, epochs[:-1]))\n", "", (_STARTS,)),
    Defect("an announcement of the next attempt ends this one", "journal/attempts.py:Attempts.announce_following",
           "contextlib.suppress(OSError, StreamsinkError)", "contextlib.suppress(OSError)", (_STARTS,)),
    Defect("what waits for the next questions is never done", "storage/reading.py:AskedAhead._at_once",
           "[*waiting, *actions]", "list(actions)", (_ASKED_AHEAD, _STARTS)),
    Defect("lists that were written for another base stay", "table/commit/tries.py:Looking.usable_ahead",
           "        delete(self._table, ahead.files.own, Look.SINCE_TRY, durable=False)\n", "", (_FINAL_NAMES,)),
    Defect("a snapshot is marked before it is known to have come in time", "protocol/run/publish_queue.py:PublishQueue._finish",
           "        if outcome.settle is not None:\n", "        if False:\n", (_FINAL_NAMES,)),
    Defect("what is to be done beside the next batch is never done", "protocol/run/publish_schedule.py:PublishSchedule.stop",
           "            self._settle()\n", "", (_FINAL_NAMES,)),
    Defect("a record of files with final names looks like one of earlier code", "journal/record_format.py:encode_record",
           "        version = _WITH_FINAL_NAMES\n", "        pass\n", (_FINAL_NAMES,)),
    Defect("answers of a look are kept when the next look has failed", "storage/reading.py:AskedAhead.keeping",
           "self._of.kept = {}", "pass", (_ASKED_AHEAD,)),
    Defect("some answers of an earlier look count beside new ones", "storage/reading.py:AskedAhead.recent",
           "is_recent and kept.keys() >= self._asks(questions).keys()", "is_recent", (_ASKED_AHEAD,)),
    Defect("what an attempt began on is told by its number alone", "table/history/deletion.py:_is_named",
           "before is None or not uuid or before.uuid != uuid", "False", (_FINAL_NAMES,)),
    Defect("files of a folder that has many are taken for those that tasks have written", "sinks/paimon/promise.py:see",
           "_found(file_io, sizes), sizes", "sizes, sizes", ("tests/test_grows.py",)),
    Defect("lists of a snapshot made after a sleep are not looked for", "table/history/whole.py:Whole.has_all_of",
           "knows_lists=False", "knows_lists=True", (_FINAL_NAMES,)),
    Defect("a snapshot made after a sleep is checked beside the next batch", "table/commit/table_commit.py:TableCommit._try_once",
           "found.base.is_long_ago()", "False", (_FINAL_NAMES,)),
    # -- executors on other machines
    Defect("a task that can neither write nor clean up hides why", "table/history/deletion.py:delete_staged",
           "except (OSError, StreamsinkError) as failed", "except OSError as failed", ("tests/table/test_deletion.py",)),
    Defect("a task of another version writes", "spark/rows/tasks.py:check_version", "of_driver != VERSION", "False", (_OTHER_VERSION,)),
)
