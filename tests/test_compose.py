"""docker-compose.yml is well-formed and starts the job against its own broker.
A compose client checks it where there is one."""

import shutil
import subprocess

import yaml

from tools.common import ROOT

FILE = ROOT / "docker-compose.yml"
CLIENTS = (["docker", "compose"], ["docker-compose"])
TIMEOUT_S = 60


def client() -> list[str] | None:
    for command in CLIENTS:
        if shutil.which(command[0]):
            done = subprocess.run([*command, "version"], capture_output=True, timeout=TIMEOUT_S)
            if done.returncode == 0:
                return command
    return None


def test_a_compose_client_accepts_the_file():
    command = client()
    if command is None:
        return  # The other tests read the file themselves: a client is no requirement of the gate.
    done = subprocess.run(
        [*command, "-f", str(FILE), "config", "-q"], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr


def test_every_reference_in_the_file_is_defined():
    document = yaml.safe_load(FILE.read_text())
    services = document["services"]
    assert set(services) == {"kafka", "topic", "job"}
    for name, service in services.items():
        assert "image" in service, name
        assert set(service.get("depends_on", {})) <= set(services), name
        named = {volume.split(":")[0] for volume in service.get("volumes", []) if not volume.startswith((".", "/"))}
        assert named <= set(document["volumes"]), name


def test_the_job_waits_for_a_healthy_broker_and_is_a_target_of_the_makefile():
    services = yaml.safe_load(FILE.read_text())["services"]
    assert services["kafka"]["healthcheck"]["test"][0] == "CMD"
    assert services["topic"]["depends_on"]["kafka"]["condition"] == "service_healthy"
    assert services["job"]["depends_on"]["topic"]["condition"] == "service_completed_successfully"
    make, target, *settings = services["job"]["command"]
    assert (make, target) == ("make", "run")
    assert f"\n{target}:" in (ROOT / "Makefile").read_text()
    assert dict(setting.split("=", 1) for setting in settings) == {"BROKERS": "kafka:9092", "TOPIC": "orders"}
    # The address that the broker gives to its clients is the one that the job asks for.
    assert services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://kafka:9092"
