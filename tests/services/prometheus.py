"""Prometheus and its promtool: the machine's own, otherwise Debian's package, unpacked into the cache; nothing is
installed into the system.
"""

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.services.ports import LOOPBACK
from tests.services.server import MAKE_TIMEOUT_S, Server, ServerError, made_once, run
from tools.common import SetupError, run_retrying

_TIMEOUT_S = 30


def _unpack(root: Path) -> None:
    """Unpack Debian's package below a folder of ours."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise ServerError("no prometheus is installed, and its package is fetched on Debian and its children only")
    root.mkdir(parents=True)
    # Only root may update the lists; the lists that are there may do as well.
    update = "apt-get -o DPkg::Lock::Timeout=300 update -qq; " if os.geteuid() == 0 else ""
    try:
        download = f'{update}cd "$1" && apt-get download -qq prometheus'
        run_retrying(["sh", "-c", download, "sh", root], "downloading Prometheus")
    except SetupError as why:
        raise ServerError(str(why)) from why
    for package in sorted(root.glob("*.deb")):
        run(f"unpacking {package.name}", ["dpkg-deb", "-x", package, root])
        package.unlink()


def program(name: str) -> str:
    """The path of ``prometheus`` or ``promtool``. Raises ServerError where it cannot be had."""
    installed = shutil.which(name)
    return installed or str(made_once("prometheus", _unpack) / "usr" / "bin" / name)


def promtool(*arguments: object, stdin: str = "", folder: Path | None = None) -> str:
    """What promtool says. Raises ServerError when it is not content."""
    command = [program("promtool"), *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=MAKE_TIMEOUT_S, cwd=folder)
    if done.returncode:
        raise ServerError(f"promtool: {done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout + done.stderr


class Prometheus(Server):
    """Scrapes targets every two seconds, and looks at rules each second. targets: ``host:port``."""

    def __init__(self, data_dir: Path, targets: Sequence[str], rules: Sequence[Path] = ()) -> None:
        super().__init__(data_dir)
        self._rules = [str(rule) for rule in rules]
        self.targets = list(targets)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def prepare(self):
        scrape = {"job_name": "streamsink", "static_configs": [{"targets": self.targets}]}
        config = {
            "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"},
            "scrape_configs": [scrape],
            "rule_files": self._rules,
        }
        (self.data_dir / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML

    def command(self):
        return [
            program("prometheus"),
            f"--config.file={self.data_dir / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.data_dir / 'tsdb'}",
            f"--web.listen-address={LOOPBACK}:{self.port}",
            f"--web.console.templates={self.data_dir}",
            f"--web.console.libraries={self.data_dir}",
            "--log.level=warn",
        ]

    def answers(self):
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=_TIMEOUT_S) as answer:
                return answer.status == 200
        except OSError:
            return False

    def query(self, expression: str) -> list[dict]:
        """The series that the expression has now: ``{"metric": labels, "value": [time, text]}``."""
        asked = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query?{asked}", timeout=_TIMEOUT_S) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as refused:
            raise ServerError(f"{expression}: {refused.read().decode()}") from refused

    def fired(self) -> set[str]:
        """Names of the alerts that have fired since the start."""
        return {each["metric"]["alertname"] for each in self.query('last_over_time(ALERTS{alertstate="firing"}[1h])')}
