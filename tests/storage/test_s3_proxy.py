"""The proxy that other tests and the benchmarks look through: what it records, and what it does to requests."""

import base64
import hashlib
import socket
import time
import uuid

import pytest

from tests.services import s3_proxy
from tests.services.s3_proxy import S3Proxy, S3ProxyProcess
from tests.services.s3_requests import KINDS

BODY = b"x" * 600_000
MD5 = base64.b64encode(hashlib.md5(BODY).digest()).decode()


@pytest.fixture
def proxy(s3_server):
    with S3Proxy(s3_server.endpoint) as started:
        yield started


def _client(server, endpoint, attempts=1, timeout_s=60):
    import boto3
    from botocore.config import Config

    config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": attempts}, read_timeout=timeout_s)
    options = server.options
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=options["s3.access-key"],
        aws_secret_access_key=options["s3.secret-key"],
        region_name=options["s3.region"],
        config=config,
    )


def _one_of_each(client, at):
    """Make a request of each kind but OTHER and LIST_PARTS, and return the kinds in the order of the requests."""
    bucket, key = at["Bucket"], at["Key"]
    client.put_object(Body=BODY, **at)
    client.copy_object(Bucket=bucket, Key=f"{key}-copy", CopySource=at)
    assert client.get_object(**at)["Body"].read() == BODY
    client.head_object(**at)
    client.list_objects_v2(Bucket=bucket, Prefix=key)
    upload = client.create_multipart_upload(**at)["UploadId"]
    part = client.upload_part(UploadId=upload, PartNumber=1, Body=BODY, **at)
    client.complete_multipart_upload(
        UploadId=upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}, **at
    )
    upload = client.create_multipart_upload(**at)["UploadId"]
    client.upload_part_copy(UploadId=upload, PartNumber=1, CopySource=at, **at)
    client.list_multipart_uploads(Bucket=bucket, Prefix=key)
    client.abort_multipart_upload(UploadId=upload, **at)
    client.delete_object(**at)
    client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key}]})
    kinds = ["PUT", "COPY", "GET", "HEAD", "LIST", "CREATE_UPLOAD", "PART", "COMPLETE", "CREATE_UPLOAD", "PART_COPY"]
    return [*kinds, "LIST_UPLOADS", "ABORT", "DELETE", "DELETE_MANY"]


def test_every_request_is_recorded_with_its_kind_and_bytes(proxy, s3_server):
    """The server does the same as without a proxy."""
    at = {"Bucket": s3_server.bucket, "Key": uuid.uuid4().hex}
    expected = _one_of_each(_client(s3_server, proxy.endpoint), at)
    seen = proxy.take()
    assert [one.kind for one in seen] == expected and set(expected) | {"OTHER", "LIST_PARTS"} == set(KINDS)
    assert [one.number for one in seen] == list(range(1, len(seen) + 1)) and proxy.requests == []
    first, copy, got = seen[:3]
    assert (first.key, first.bucket, first.up_bytes) == (at["Key"], at["Bucket"], len(BODY))
    assert (copy.copied_bytes, copy.up_bytes, got.down_bytes) == (len(BODY), 0, len(BODY))
    assert all(one.status in (200, 204) and one.start_s < one.end_s for one in seen)
    assert {one.access_key for one in seen} == {s3_server.options["s3.access-key"]}


def test_a_proxy_of_its_own_process_delays_and_records_likewise(s3_server):
    """The answer is held back, not the request."""
    at = {"Bucket": s3_server.bucket, "Key": uuid.uuid4().hex}
    with S3ProxyProcess(s3_server.endpoint) as proxy:
        client = _client(s3_server, proxy.endpoint)
        proxy.delay_ms = 50
        client.put_object(Body=b"x", **at)
        [put] = proxy.take()
        assert proxy.delay_ms == 50 and put.kind == "PUT" and put.end_s - put.start_s >= 0.05
        assert proxy.take() == []


@pytest.mark.in_turn("faults of the proxy", 3)
@pytest.mark.parametrize("what", s3_proxy.FAULTS)
def test_a_fault_meets_the_request_that_it_was_ordered_for(proxy, s3_server, what):
    """The second PUT fails in the ordered way; whether the server has done it is as ordered too."""
    from botocore.exceptions import ClientError, HTTPClientError

    bucket, key = s3_server.bucket, uuid.uuid4().hex
    client = _client(s3_server, proxy.endpoint)
    # Who waits for an answer that does not come gives up soon; any other answer may take as long as the machine wants.
    waits_in_vain = what in (s3_proxy.STALL, s3_proxy.HELD, s3_proxy.LATE)
    meets_it = _client(s3_server, proxy.endpoint, timeout_s=2) if waits_in_vain else client
    proxy.fault("PUT", 2, what, seconds=20 if waits_in_vain else 6)
    client.put_object(Bucket=bucket, Key=f"{key}-1", Body=BODY)
    with pytest.raises((ClientError, HTTPClientError)) as failed:
        meets_it.put_object(Bucket=bucket, Key=f"{key}-2", ContentMD5=MD5, Body=BODY)
    assert ("SlowDown" in str(failed.value)) == (what == s3_proxy.SLOW_DOWN)
    client.put_object(Bucket=bucket, Key=f"{key}-3", Body=BODY)
    assert [one.fault for one in proxy.take()] == ["", what, ""]
    found = s3_server.client().list_objects_v2(Bucket=bucket, Prefix=key)["Contents"]
    done = what in (s3_proxy.RESET_AFTER, s3_proxy.BROKEN, s3_proxy.LATE)
    assert [one["Key"][-1] for one in found] == (["1", "2", "3"] if done else ["1", "3"])


def test_who_sends_a_body_without_leave_reads_the_refusal(proxy, s3_server):
    """As botocore does when it has waited a second."""
    proxy.fault("PUT", 1, s3_proxy.SLOW_DOWN)
    host, port = proxy.endpoint.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        head = f"PUT /{s3_server.bucket}/x HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\nExpect: 100-continue"
        client.sendall(f"{head}\r\n\r\n".encode())
        while not proxy.requests or not proxy.requests[0].status:
            time.sleep(0.001)  # by then it is refused
        for at in range(0, len(BODY), 60_000):
            client.sendall(BODY[at : at + 60_000])
            time.sleep(0.001)
        assert client.recv(100).startswith(b"HTTP/1.1 503")


def test_a_client_that_waits_for_a_late_answer_gets_it(proxy, s3_server):
    """And a client that repeats what was throttled is through when the fault has had its times."""
    at = {"Bucket": s3_server.bucket, "Key": uuid.uuid4().hex}
    client = _client(s3_server, proxy.endpoint, attempts=3)
    proxy.fault("PUT", 1, s3_proxy.LATE, seconds=0.2)
    client.put_object(Body=b"x", **at)
    proxy.fault("*", 1, s3_proxy.SLOW_DOWN, times=2)
    assert client.get_object(**at)["Body"].read() == b"x"
    assert [(one.kind, one.status) for one in proxy.take()] == [("PUT", 200), ("GET", 503), ("GET", 503), ("GET", 200)]
