"""A real Kubernetes on this machine: its own API server, controllers, scheduler and kubelet, and pods by containerd.

The parts of Kubernetes are compiled from their modules for Go, and containerd and runc come from Debian's packages, all
once for each machine. The node is in namespaces of its own (``kubernetes_node.py``), so it needs root and Linux.
"""

import contextlib
import ctypes
import hashlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.services import process
from tests.services.kubernetes_node import CGROUPS, NODE, PAUSE
from tests.services.ports import LOOPBACK
from tests.services.server import Server, ServerError, made_once, run
from tools.common import ROOT

SOURCES = Path(__file__).parent / "kubernetes_parts"
VERSION = "v1.34.4"
PACKAGES = ("containerd", "runc", "containernetworking-plugins")
# Its modules are downloaded and compiled once for each machine, by one processor.
BUILD_TIMEOUT_S = 7_200
# What the compiler leaves out is half of its work, and serves nobody here.
QUICKLY = ("-p=1", "-gcflags=all=-N -l -dwarf=false")
_SHOWN = ("/usr", "/etc/alternatives", "/etc/ssl", "/etc/java-17-openjdk")


def _digest() -> str:
    """Other sources are another program."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()))).hexdigest()[:12]


def program() -> Path:
    """The parts of Kubernetes in one program, whose first argument names the part. Raises ServerError."""
    return made_once(f"kubernetes-{VERSION}-{_digest()}", _build)


def _build(made: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise ServerError("no go is installed, by which Kubernetes is built")
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    flags = "-s -w " + " ".join(f"-X {package}.gitVersion={VERSION}" for package in packages)
    command = [go, "build", "-buildvcs=false", "-trimpath", *QUICKLY, "-ldflags", flags, "-o", str(made), "."]
    environment = os.environ | {"CGO_ENABLED": "0", "GOMAXPROCS": "1"}
    done = subprocess.run(
        command, cwd=SOURCES, env=environment, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
    )
    if done.returncode:
        raise ServerError(f"building Kubernetes: {done.stderr[-2000:]}")


def tools() -> Path:
    """The folder in which the files of PACKAGES are, as they would be below '/'. Nothing is installed."""
    return made_once("-".join(PACKAGES), _unpack)


def _unpack(made: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise ServerError("containerd is taken from Debian's packages, and this system is none of Debian's")
    packed = made / "packed"
    packed.mkdir(parents=True)
    run("apt-get download", ["apt-get", "-o", "APT::Sandbox::User=root", "download", *PACKAGES], cwd=packed)
    for package in packed.iterdir():
        run("dpkg-deb", ["dpkg-deb", "-x", package, made])
    shutil.rmtree(packed)


@dataclass(frozen=True)
class Image:
    """An image without a registry. Its programs are this machine's, which containers see; files and links, by their
    paths, are what it has itself.

    name: as a manifest names it.
    """

    name: str
    entrypoint: Sequence[str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    def save(self, to: Path) -> None:
        """In the form of ``docker save``."""
        layer = self._layer()
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Env": [f"{name}={value}" for name, value in self.env.items()],
                "Entrypoint": list(self.entrypoint),
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
        manifest = [{"Config": "config.json", "RepoTags": [self.name], "Layers": ["layer.tar"]}]
        with tarfile.open(to, "w") as archive:
            _add(archive, "layer.tar", layer)
            _add(archive, "config.json", json.dumps(config).encode())
            _add(archive, "manifest.json", json.dumps(manifest).encode())

    def _layer(self) -> bytes:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            for folder in ("etc", "opt", "proc", "root", "run", "sys", "tmp", "usr", "var", "work"):
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
                archive.addfile(entry)
            usual = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}
            for name, to in (usual | dict(self.links)).items():
                entry = tarfile.TarInfo(name.lstrip("/"))
                entry.type, entry.linkname = tarfile.SYMTYPE, to
                archive.addfile(entry)
            for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache"):
                _add(archive, f"etc/{name}", Path("/etc", name).read_bytes())
            for name, content in self.files.items():
                _add(archive, name.lstrip("/"), content)
        return made.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755
    archive.addfile(entry, io.BytesIO(content))


def pause() -> Image:
    """What holds a pod's namespaces. It sees nothing of this machine, so it has its program with what that loads."""
    program = "/usr/bin/sleep"
    said = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    loaded = re.findall(r"(/\S+) \(0x", said)
    # '/lib' is a link to 'usr/lib', in the image as on this machine.
    files = {f"/usr{each.removeprefix('/usr')}": Path(each).read_bytes() for each in (program, *loaded)}
    return Image(PAUSE, [program, "infinity"], files)


class Kubernetes(Server):
    """A cluster of one machine. shown: folders of this machine that containers can read, under the same paths."""

    ports = 0
    ready_timeout_s = 300

    def __init__(self, data_dir: Path, images: Sequence[Image], shown: Sequence[str]):
        super().__init__(data_dir)
        self._images = [pause(), *images]
        self._shown = sorted({folder for folder in (*_SHOWN, *shown) if os.path.isdir(folder)})

    @property
    def machine(self) -> int:
        """The process id of the machine's first process, by which its namespaces are entered."""
        [first] = process.children(self.pid)
        return first

    @property
    def kubectl(self) -> Path:
        """A program of that name."""
        return self.data_dir / "programs" / "kubectl"

    def prepare(self) -> None:
        if sys.platform != "linux" or os.geteuid() != 0:
            raise ServerError("a node of Kubernetes needs Linux, and to be root")
        if shutil.which("kubectl") is None:
            raise ServerError("no kubectl is installed")
        (self.data_dir / "ready").unlink(missing_ok=True)
        images = self.data_dir / "images"
        images.mkdir(exist_ok=True)
        for number, image in enumerate(self._images):
            image.save(images / f"{number}.tar")
        ctr = str(tools() / "usr/bin/ctr")
        spec = json.loads(subprocess.run([ctr, "oci", "spec"], check=True, capture_output=True, text=True).stdout)
        spec["mounts"] += [
            {"destination": folder, "type": "bind", "source": os.path.realpath(folder), "options": ["rbind", "ro"]}
            for folder in self._shown
        ]
        (self.data_dir / "container.json").write_text(json.dumps(spec))

    def command(self) -> list[str]:
        apart = "unshare --net --mount --pid --fork --kill-child --mount-proc".split()
        node = str(ROOT / "tests" / "services" / "kubernetes_node.py")
        return [*apart, sys.executable, node, str(self.data_dir), str(program()), str(tools())]

    def answers(self) -> bool:
        return (self.data_dir / "ready").exists()

    def start(self) -> "Kubernetes":
        super().start()
        self.kubectl.parent.mkdir(exist_ok=True)
        admin = self.data_dir / "admin.json"
        enter = f"exec nsenter --target {self.machine} --net {shutil.which('kubectl')} --kubeconfig={admin}"
        self.kubectl.write_text(f'#!/bin/sh\n{enter} "$@"\n')
        self.kubectl.chmod(0o755)
        return self

    def reach(self, port: int) -> int:
        """The port of ``NODE`` by which pods reach a server on this machine's loopback interface."""
        listening = _in_network_of(self.machine, lambda: socket.create_server((NODE, port)))
        threading.Thread(target=_forward, args=(listening, port), daemon=True).start()
        return port

    def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        """The kernel ends whatever runs there, with the first process. Its groups of processes are empty soon after."""
        super().kill()
        end = time.monotonic() + process.STOP_TIMEOUT_S
        for group in CGROUPS.glob(f"*/streamsink-{self.data_dir.name}"):
            for folder, _, _ in os.walk(group, topdown=False):
                while not _is_removed(folder) and time.monotonic() < end:
                    time.sleep(0.1)


def _is_removed(group: str) -> bool:
    try:
        os.rmdir(group)
    except OSError:
        return False
    return True


def _in_network_of(pid: int, make: Callable[[], socket.socket]) -> socket.socket:
    """What ``make`` returns in the network of another process. A socket stays in the network where it was made."""

    def there() -> socket.socket:
        with open(f"/proc/{pid}/ns/net") as network:  # the change is that of this thread, which ends
            if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), 0):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return make()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(there).result()


def _forward(listening: socket.socket, port: int) -> None:
    while True:
        near, _ = listening.accept()
        far = socket.create_connection((LOOPBACK, port))
        for one, other in ((near, far), (far, near)):
            threading.Thread(target=_pour, args=(one, other), daemon=True).start()


def _pour(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)
