"""One machine of Kubernetes, all of it: the control plane, a kubelet with containerd, and the two services of a cluster
that every pod relies on (names, and the API server's address).

It is the first process of namespaces of its own (``unshare --net --mount --pid``). So nobody else has its addresses or
sees what it mounts, and when it dies the kernel ends every process of every pod. It runs as root, and with Python's own
library alone.

    python kubernetes_node.py FOLDER PROGRAM TOOLS

FOLDER has what a node keeps; PROGRAM is the parts of Kubernetes in one; TOOLS is where containerd's package lies
unpacked.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

NODE = "10.90.0.1"  # the machine's address
API, DNS, SERVICES = "10.96.0.1", "10.96.0.10", "10.96.0.0/24"
PODS = "10.91.0.0/24"
API_NAME = "kubernetes.default.svc"
DOMAIN = "cluster.local"
PAUSE = "streamsink.test/pause:1"
CONTAINERD = "/run/containerd/containerd.sock"
# Those that the parts present to the API server, and whom they stand for.
TOKENS = {
    "admin": ("admin", "system:masters"),
    "manager": ("system:kube-controller-manager", "system:masters"),
    "scheduler": ("system:kube-scheduler", ""),
    "kubelet": ("system:node:node", "system:nodes"),
}
# What a kubelet sets for the whole machine, which here is also that of others.
MACHINE_WIDE = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
MACHINE_WIDE += ("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")
CGROUPS = Path("/sys/fs/cgroup")
# All pods together are one group to the kernel, which would have as much of a busy processor as one process elsewhere.
SHARES = 10 * 1024
READY_S = 180
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_LIBC = ctypes.CDLL(None, use_errno=True)


def mount(what: str, where: str, kind: str = "", flags: int = 0) -> None:
    """Raises OSError."""
    if _LIBC.mount(what.encode(), where.encode(), kind.encode() or None, flags, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), where)


class Node:
    """The processes of a machine. folder: its disk."""

    def __init__(self, folder: Path, program: str, tools: Path):
        self._folder, self._program, self._tools = folder, program, tools
        self._log = folder / "log"
        self._started: dict[int, tuple[str, subprocess.Popen]] = {}

    # -- the machine -----------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Folders, addresses and names. Nothing of it is seen outside of the namespaces."""
        self._log.mkdir(parents=True, exist_ok=True)
        mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
        for name in MACHINE_WIDE:
            own = self._folder / "sys" / name
            own.parent.mkdir(parents=True, exist_ok=True)
            own.write_text("0\n")
            mount(str(own), f"/proc/sys/{name}", flags=_MS_BIND)
        for place in ("/run", "/var/log"):
            mount("tmpfs", place, "tmpfs")
        for name in ("/run/lock", "/run/containerd", "/var/log/pods"):
            os.makedirs(name, exist_ok=True)
        for command in ("link set lo up", *(f"address add {address}/32 dev lo" for address in (NODE, API, DNS))):
            subprocess.run(["ip", *command.split()], check=True)
        (self._folder / "resolv.conf").write_text(f"nameserver {DNS}\n")
        threading.Thread(target=answer_names, daemon=True).start()

    def spawn(self, name: str, command: list[str], env: dict[str, str] | None = None) -> None:
        with open(self._log / f"{name}.log", "ab") as log:
            started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | (env or {})
            )
        self._started[started.pid] = (name, started)

    def part(self, name: str, **options: str) -> None:
        """Start a part of Kubernetes; its options are written with an underscore for a hyphen."""
        given = [f"--{option.replace('_', '-')}={value}" for option, value in options.items()]
        self.spawn(name, [self._program, name, *given], {"GOMAXPROCS": "2"})

    # -- the control plane -----------------------------------------------------------------------------------------

    def control_plane(self) -> None:
        folder = self._folder
        key, tokens = folder / "accounts.key", folder / "tokens.csv"
        if not key.exists():
            subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        rows = [f'{name}-token,{user},{user},"{group}"\n' for name, (user, group) in TOKENS.items()]
        tokens.write_text("".join(rows))
        for name in TOKENS:
            self.kubeconfig(name)
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts:default"]}, {"level": "None"}],
        }
        (folder / "audit.json").write_text(json.dumps(policy))
        self.part("etcd", data_dir=str(folder / "etcd"), unsafe_no_fsync="true", log_level="warn")
        self.part(
            "kube-apiserver",
            etcd_servers="http://127.0.0.1:2379",
            bind_address="0.0.0.0",  # noqa: S104  of its own network
            secure_port="443",
            advertise_address=NODE,
            cert_dir=str(folder / "certificates"),
            service_cluster_ip_range=SERVICES,
            service_account_issuer=f"https://{API_NAME}",
            service_account_key_file=str(key),
            service_account_signing_key_file=str(key),
            token_auth_file=str(tokens),
            authorization_mode="Node,RBAC",
            kubelet_preferred_address_types="InternalIP",
            enable_admission_plugins="NodeRestriction",
            audit_policy_file=str(folder / "audit.json"),
            audit_log_path=str(folder / "audit.log"),
        )
        self.wait("the API server", lambda: self.says("/readyz") == "ok")
        certificate = str(folder / "certificates" / "apiserver.crt")
        as_manager = {"kubeconfig": str(folder / "manager.json"), "leader_elect": "false"}
        self.part(
            "kube-controller-manager",
            **as_manager,
            root_ca_file=certificate,
            service_account_private_key_file=str(key),
            cert_dir=str(folder / "manager"),
        )
        as_scheduler = {"kubeconfig": str(folder / "scheduler.json"), "leader_elect": "false"}
        self.part("kube-scheduler", **as_scheduler, cert_dir=str(folder / "scheduler"))

    def kubeconfig(self, name: str) -> None:
        """A file by which a client speaks as one of TOKENS. The API server makes its own certificate."""
        file = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "here", "cluster": {"server": f"https://{NODE}:443", "insecure-skip-tls-verify": True}}
            ],
            "users": [{"name": name, "user": {"token": f"{name}-token"}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": name}}],
            "current-context": "here",
        }
        (self._folder / f"{name}.json").write_text(json.dumps(file))

    def says(self, path: str) -> str:
        """What the API server answers to its administrator; '' where it does not."""
        url = f"https://{NODE}:443{path}"
        request = urllib.request.Request(url, headers={"Authorization": "Bearer admin-token"})
        unchecked = ssl._create_unverified_context()  # noqa: S323  its certificate is made by itself
        try:
            with urllib.request.urlopen(request, context=unchecked, timeout=5) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def is_ready(self) -> bool:
        """Whether the node takes pods."""
        node = self.says("/api/v1/nodes/node")
        conditions = json.loads(node)["status"]["conditions"] if node else []
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    # -- the node --------------------------------------------------------------------------------------------------

    def node(self) -> None:
        """containerd, the images, and the kubelet."""
        folder, tools = self._folder, self._tools
        programs = f"{tools / 'usr/bin'}:{tools / 'usr/sbin'}:{os.environ['PATH']}"
        (folder / "containerd.toml").write_text(self._containerd())
        network = {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "pods",
                    "isDefaultGateway": True,
                    "ipam": {"type": "host-local", "ranges": [[{"subnet": PODS}]], "dataDir": str(folder / "ipam")},
                }
            ],
        }
        (folder / "cni").mkdir(exist_ok=True)
        (folder / "cni" / "pods.conflist").write_text(json.dumps(network))
        self.spawn("containerd", ["containerd", "--config", str(folder / "containerd.toml")], {"PATH": programs})
        ctr = [str(tools / "usr/bin/ctr"), "--address", CONTAINERD]
        self.wait("containerd", lambda: subprocess.run([*ctr, "version"], capture_output=True).returncode == 0)
        for image in sorted((folder / "images").glob("*.tar")):
            subprocess.run([*ctr, "--namespace", "k8s.io", "images", "import", str(image)], check=True)
        for controller in CGROUPS.iterdir():
            if controller.is_dir() and not controller.is_symlink():
                (controller / self.cgroup).mkdir(parents=True, exist_ok=True)
        (CGROUPS / "cpu" / self.cgroup / "cpu.shares").write_text(str(SHARES))
        (folder / "kubelet-config.json").write_text(json.dumps(self._kubelet()))
        self.spawn(
            "kubelet",
            [
                self._program,
                "kubelet",
                f"--config={folder / 'kubelet-config.json'}",
                f"--kubeconfig={folder / 'kubelet.json'}",
                f"--root-dir={folder / 'kubelet'}",
                f"--cert-dir={folder / 'kubelet-certificates'}",
                "--hostname-override=node",
                f"--node-ip={NODE}",
            ],
            {"PATH": programs},
        )
        self.wait("the node", self.is_ready)

    @property
    def cgroup(self) -> str:
        return f"streamsink-{self._folder.name}"

    def _containerd(self) -> str:
        cri = "io.containerd.grpc.v1.cri"
        return f"""version = 2
root = "{self._folder / "containerd"}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.opt"]
[grpc]
  address = "{CONTAINERD}"
[plugins."{cri}"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."{cri}".cni]
    bin_dir = "{self._tools / "usr/lib/cni"}"
    conf_dir = "{self._folder / "cni"}"
  [plugins."{cri}".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    base_runtime_spec = "{self._folder / "container.json"}"
    [plugins."{cri}".containerd.runtimes.runc.options]
      BinaryName = "{self._tools / "usr/sbin/runc"}"
      SystemdCgroup = false
"""

    def _kubelet(self) -> dict:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "clusterDNS": [DNS],
            "clusterDomain": DOMAIN,
            "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
            "failSwapOn": False,
            "failCgroupV1": False,
            "localStorageCapacityIsolation": False,
            "podLogsDir": "/var/log/pods",
            "resolvConf": str(self._folder / "resolv.conf"),
            "evictionHard": {"memory.available": "100Mi"},
        }

    # -- its life --------------------------------------------------------------------------------------------------

    def wait(self, what: str, is_there: Callable[[], bool]) -> None:
        """Raises TimeoutError."""
        end = time.monotonic() + READY_S
        while not is_there():
            self.reap()
            if time.monotonic() > end:
                raise TimeoutError(f"{what} does not answer")
            time.sleep(0.2)

    def reap(self) -> None:
        """Collect what has ended: the first process of its namespace is the parent of all orphans. Raises SystemExit
        where it is one of the machine's own parts.
        """
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] in self._started:
                    sys.exit(f"{self._started[ended[0]][0]} has ended: {ended[1]}")


def answer_names() -> None:
    """Say the API server's address to who asks for its name, and that there are no others."""
    asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asked.bind((DNS, 53))
    while True:
        question, who = asked.recvfrom(512)
        at, labels = 12, []
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode().lower())
            at += 1 + question[at]
        (kind,) = struct.unpack(">H", question[at + 1 : at + 3])
        is_known = ".".join(labels) in (API_NAME, f"{API_NAME}.{DOMAIN}")
        answer = (
            b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 5, 4) + socket.inet_aton(API) if is_known and kind == 1 else b""
        )
        flags = 0x8580 if is_known else 0x8583
        header = question[:2] + struct.pack(">HHHHH", flags, 1, 1 if answer else 0, 0, 0)
        asked.sendto(header + question[12 : at + 5] + answer, who)


def main() -> None:
    folder, program, tools = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    node = Node(folder, program, tools)
    node.prepare()
    node.control_plane()
    node.node()
    (folder / "ready").touch()
    while True:
        node.reap()
        time.sleep(0.2)


if __name__ == "__main__":
    main()
