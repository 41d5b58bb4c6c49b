"""How the place of something is written down, by which it is told from another one."""

import pytest

from streamsink.spark.gateway.running import without_credentials


@pytest.mark.parametrize(
    "path, place",
    [
        ("s3a://key:secret@bucket/checkpoint", "s3a://bucket/checkpoint"),
        ("jdbc:postgresql://user:secret@host/db", "jdbc:postgresql://host/db"),
        ("abfss://one@account.example/checkpoint", "abfss://one@account.example/checkpoint"),
        ("hdfs://host:9000/a@b", "hdfs://host:9000/a@b"),
    ],
)
def test_a_place_is_told_without_its_password_and_with_its_container(path, place):
    """Two containers of one account are two places: a checkpoint that is copied from one to the other is a copy."""
    assert without_credentials(path) == place
