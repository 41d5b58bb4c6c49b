"""Defects of the client of S3, and of the hold that ends with its query."""

from tests.sabotage.defect import Defect

_CLIENT = "tests/storage/test_s3_client.py"
_HOLDS = "tests/e2e/test_holds.py"
_KEYS = "tests/storage/test_s3_keys.py"

OF_STORES = (
    Defect("S3: a body is announced, and its leave awaited", "storage/s3_client.py:_send_the_body_at_once",
           'params["headers"].pop("Expect", None)', "None", (f"{_CLIENT}::test_a_body_is_sent_without_asking_before",)),
    Defect("S3: a listing is its first page", "storage/s3_calls.py:S3Calls._pages",
           'page.get("IsTruncated", False)', "False", (f"{_CLIENT}::test_a_listing_of_several_pages_is_whole",)),
    Defect("S3: an answer that breaks off is not asked for again", "storage/s3_calls.py:S3Calls._content",
           "if not left:", "if True:", (f"{_CLIENT}::test_an_answer_that_breaks_off_is_asked_for_again",)),
    Defect("S3: a program of keys that is gone is an object that is gone", "storage/s3_client.py:failure",
           "OSError(ENOKEY, f\"fetching keys failed with {type(failed).__name__}\", path)", "failed", (_KEYS,)),
    Defect("S3: keys that were withdrawn are kept", "storage/s3_client.py:S3Client.renew",
           "if _has_keys(self._options):", "if True:", (_KEYS,)),
    Defect("S3: each request that is refused fetches keys", "storage/s3_client.py:S3Client.renew",
           "if self._made is None or self._made[1] is not refused:", "if self._made is None:", (_KEYS,)),
    Defect("a hold outlives its query", "spark/query/ended.py:_watch", "if run.is_over():", "if False:", (_HOLDS,)),
)
