"""docs/how-to/KUBERNETES.md on a real Kubernetes: its manifest, its commands, and the deaths that it speaks of."""

import contextlib
import json
import os
import signal
import time

import pytest

from tests.conftest import unavailable
from tests.docs import kubernetes_schema
from tests.e2e.on_kubernetes import DRIVER, EXECUTOR, Orders, image, shown
from tests.e2e.submitted import DAEMON
from tests.services.kubernetes import Kubernetes
from tests.services.server import ServerError

LONGEST_PAUSE_S = 8  # between what is sent and a death


@pytest.fixture
def orders(tmp_path, s3_server, monkeypatch):
    """The page, on a cluster of its own, with the commands' ``kubectl``."""
    root = f"{tmp_path.name}-{os.getpid()}"
    lake = f"s3a://{s3_server.bucket}/{root}"
    with contextlib.ExitStack() as ending:
        try:
            cluster = ending.enter_context(Kubernetes(tmp_path / "node", [image(s3_server.port, lake)], shown()))
        except ServerError as why:
            unavailable("Kubernetes", why)
        cluster.reach(s3_server.port)
        monkeypatch.setenv("PATH", f"{cluster.kubectl.parent}{os.pathsep}{os.environ['PATH']}")
        (tmp_path / "reader").mkdir()
        reader = Orders(tmp_path / "reader", cluster, s3_server, root)
        ending.callback(reader.close)
        yield reader


@pytest.mark.soak
def test_the_page_on_a_real_kubernetes(orders, rng):
    """Its commands start the driver and two executors, whose Python is ours. Whatever dies, Kubernetes or Spark starts
    it anew, and each row is there once. Another version of the manifest does not run beside the one before. The account
    may do what Spark's client asks for, and no more.
    """
    orders.send(2)
    orders.follow()
    orders.check()
    orders.wait("two executors", lambda: len(orders.executors("Running")) == 2)
    assert {pod["spec"]["serviceAccountName"] for pod in orders.executors("Running")} == {"spark"}
    assert orders.processes(DAEMON), "the executors' Python is started by our daemon"
    orders.wait("the driver's log", lambda: "batch 1 is there" in orders.followed())
    [first] = orders.restarts()
    assert orders.refused() == {}

    orders.send(1)
    time.sleep(rng.uniform(0, LONGEST_PAUSE_S))
    [process] = orders.processes(DRIVER)
    os.kill(process, signal.SIGKILL)
    orders.wait("another start in the pod", lambda: orders.restarts() == {first: 1})
    orders.send(1)
    orders.check()
    orders.wait("what is left of the dead driver", lambda: len(orders.executors("Succeeded")) == 2)

    orders.send(1)
    time.sleep(rng.uniform(0, LONGEST_PAUSE_S))
    orders.kubectl(f"delete pod {first}")
    orders.send(1)
    orders.check()
    [other] = orders.restarts()
    assert other != first
    orders.wait("nothing is left of the first pod", lambda: orders.owners() == {other})

    orders.send(1)
    time.sleep(rng.uniform(0, LONGEST_PAUSE_S))
    os.kill(rng.choice(orders.processes(EXECUTOR)), signal.SIGKILL)
    orders.check()
    orders.wait("Spark removes the dead executor", lambda: ("delete", "pods") in orders.asked())
    orders.wait("two executors", lambda: len(orders.executors("Running")) == 2)

    orders.send(1)
    orders.kubectl("rollout restart deployment/orders-to-lake")
    orders.wait("the Deployment is scaled", lambda: len(orders.scaled()) > 1)
    assert orders.scaled()[:2] == ["up", "down"], "the first driver ends before the next one starts"
    orders.wait("the next driver", lambda: orders.scaled() == ["up", "down", "up"])
    orders.send(1)
    orders.check()
    orders.wait("nothing is left of the pod before", lambda: orders.owners() and other not in orders.owners())

    assert orders.refused() == {}
    assert orders.granted() == set(orders.asked())

    published = json.loads(orders.kubectl("get --raw /openapi/v2"))
    assert kubernetes_schema.made_from(published) == json.loads(kubernetes_schema.FILE.read_text())
