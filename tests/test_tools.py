"""The set-up machinery remembers only what is still true, and falls back to what is published."""

import json
import os
import re
import sys

import pytest

from tools import compiled, jars, truststore, venvs
from tools.common import SetupError


def test_a_list_of_jars_is_forgotten_when_one_of_them_is_gone(tmp_path):
    jar, entry = tmp_path / "a-1.0.jar", tmp_path / "entry.json"
    jar.touch()
    entry.write_text(json.dumps({"jars": [str(jar)], "way": "plain"}))
    assert jars._remembered(entry) == jars.Resolved([str(jar)], "plain")
    jar.unlink()
    assert jars._remembered(entry) is None


def test_a_damaged_list_of_jars_is_made_again(tmp_path):
    (tmp_path / "entry.json").write_text('{"jars": [')
    assert jars._remembered(tmp_path / "entry.json") is None


def test_jars_that_pyspark_ships_are_left_out(tmp_path):
    (tmp_path / "slf4j-api-2.0.17.jar").touch()
    (tmp_path / "commons-pool-1.5.4.jar").touch()
    resolved = [
        "/i/org.slf4j_slf4j-api-2.0.16.jar",
        "/i/org.apache.commons_commons-pool2-2.12.1.jar",
        "/i/a_b_2.13-4.1.0-preview1.jar",
    ]
    assert jars._beyond(resolved, tmp_path) == resolved[1:]


def test_the_token_provider_is_taken_separately_when_its_version_is_not_published(monkeypatch):
    """The registry is a table here, because it is not in our hands whether a real one lacks a version."""
    asked = []

    def registry(_python, packages, excluded=""):
        asked.append(packages)
        if packages.endswith("kafka-0-10_2.13:4.1.3") and not excluded:
            raise jars.NotPublished(packages)
        return [f"/i/{packages.replace(':', '_')}.jar"]

    monkeypatch.setattr(jars, "_resolve", registry)
    found = jars._kafka(sys.executable, "4.1.3")
    assert found.way.startswith("split: ")
    assert [jar.rpartition("_")[2] for jar in found.jars] == ["4.1.3.jar", "4.1.0-preview1.jar"]
    assert len(asked) == 3


def test_a_connector_that_nobody_published_is_an_error_that_names_what_was_tried(monkeypatch):
    def registry(_python, packages, excluded=""):
        raise jars.NotPublished(packages)

    monkeypatch.setattr(jars, "_resolve", registry)
    with pytest.raises(SetupError, match="4.1.9 and 4.1.3"):
        jars._kafka(sys.executable, "4.1.9")


def test_s3a_comes_in_the_version_of_the_hadoop_that_pyspark_ships(monkeypatch, tmp_path):
    """With the SDK that it was built with, and without the bundle of all of it."""
    asked = []

    def registry(_python, packages, excluded=""):
        asked.append((packages, excluded))
        return []

    monkeypatch.setattr(jars, "_resolve", registry)
    with pytest.raises(SetupError, match="known are 3.4.1, 3.4.2, 3.5.0"):
        jars._s3a(sys.executable, tmp_path)
    (tmp_path / "hadoop-client-api-3.4.2.jar").touch()
    jars._s3a(sys.executable, tmp_path)
    [(packages, excluded)] = asked
    assert packages.startswith("org.apache.hadoop:hadoop-aws:3.4.2,software.amazon.awssdk:s3:2.29.52,")
    assert excluded == "software.amazon.awssdk:bundle"


def test_an_unknown_interpreter_is_named(monkeypatch):
    monkeypatch.setenv("PYTHON", "python-that-is-not-there")
    venvs.base_python.cache_clear()
    with pytest.raises(SetupError, match="python-that-is-not-there"):
        venvs.base_python()
    venvs.base_python.cache_clear()


def test_the_same_certificates_give_the_same_trust_store():
    """The name of the Java shim is made of it, so it must not change from call to call."""
    assert truststore.jks([b"one", b"two"]) == truststore.jks([b"one", b"two"]) != truststore.jks([b"two", b"one"])


@pytest.mark.parametrize(
    ("there", "asked", "filled"),
    [
        ("test", "docs", False),
        ("test", "run", False),
        ("docs", "run", False),
        ("docs", "test", True),
        ("run", "docs", True),
    ],
)
def test_an_environment_serves_who_needs_less(monkeypatch, tmp_path, there, asked, filled):
    """``make docs`` and ``make run`` install nothing where the tests have installed everything."""
    calls = []
    monkeypatch.setattr(venvs, "main_venv", lambda: tmp_path)
    monkeypatch.setattr(venvs, "_fill", lambda venv, python, content, install: calls.append(content[0]))
    base = venvs._base_stamp(tmp_path, venvs.base_python()[0])
    content = [venvs.EXTRAS[there], venvs.spark_version(), venvs._project_digest()]
    (tmp_path / venvs.STAMP).write_text(json.dumps({"base": base, "content": content}))
    venvs.ensure_main(asked)
    assert calls == ([venvs.EXTRAS[asked]] if filled else [])


def test_tests_that_have_changed_or_are_new_are_not_compiled(tmp_path):
    """For this Python: another one's files stand beside them."""
    tag, caches = f"{sys.implementation.cache_tag}-pytest-9.9.9", tmp_path / "e2e" / "__pycache__"
    caches.mkdir(parents=True)
    for number, name in enumerate(("test_kept", "test_changed", "test_of_another", "test_new", "helper")):
        (tmp_path / "e2e" / f"{name}.py").touch()
        if number < 3:
            (caches / f"{name}.{tag if number < 2 else 'cpython-27-pytest-9.9.9'}.pyc").touch()
    assert compiled.not_compiled(tmp_path) == 2
    os.utime(caches / f"test_changed.{tag}.pyc", (1, 1))
    assert compiled.not_compiled(tmp_path) == 3


def test_each_package_of_airflow_has_one_version():
    """So that a release of one of them changes nothing here."""
    lines = [line for line in venvs.AIRFLOW_PINS.read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.+]+", line)] == []
    assert set(venvs.AIRFLOW) <= set(lines) and len(lines) > 100
