"""docs/how-to/UPGRADE.md: its commands bring the new version into an environment that has an earlier one."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import streamsink
from tests.docs.blocks import ROOT, blocks_of
from tests.docs.checkout import Checkout

PAGE = "docs/how-to/UPGRADE.md"
COMMANDS = 1
EARLIER = "0.0.9"
WAIT_S = 900


@pytest.fixture
def upgrading(tmp_path) -> Checkout:
    """A checkout, and a shell in which an environment of its own is active. That has the libraries of this one."""
    made = Checkout(tmp_path)
    env = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", env], check=True)
    [site] = (env / "lib").glob("python*/site-packages")
    # A path in a .pth file is searched, and .pth files there are not read, by one of which this checkout is linked in.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    made.env |= {"VIRTUAL_ENV": str(env), "PATH": f"{env / 'bin'}:{made.env['PATH']}"}
    return made


def _become_earlier(root: Path) -> None:
    """What the checkout had before: another version, a module, and a package where there is a module now."""
    for file in ("pyproject.toml", "streamsink/protocol/sink.py"):
        text = (root / file).read_text()
        assert f'"{streamsink.__version__}"' in text
        (root / file).write_text(text.replace(f'"{streamsink.__version__}"', f'"{EARLIER}"'))
    (root / "streamsink/of_earlier.py").write_text("")
    whole = (root / "streamsink/clock.py").read_text()
    (root / "streamsink/clock.py").unlink()
    (root / "streamsink/clock").mkdir()
    (root / "streamsink/clock/__init__.py").write_text(f"OF_EARLIER = True\n{whole}")


def _become_new(root: Path) -> None:
    """As git does it: what has changed has the time of now."""
    shutil.rmtree(root / "streamsink")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "streamsink", root / "streamsink", copy_function=shutil.copyfile, ignore=ignored)
    shutil.copyfile(ROOT / "pyproject.toml", root / "pyproject.toml")


@pytest.mark.soak
def test_the_commands_leave_nothing_of_the_earlier_version(upgrading, tmp_path):
    """In the checkout from which that one was installed, after its files were brought to the new version."""
    _become_earlier(upgrading.root)
    upgrading.run("pip install .", WAIT_S)
    assert upgrading.run("streamsink --version", WAIT_S).endswith(f"version {EARLIER}\n")
    _become_new(upgrading.root)
    upgrading.run(blocks_of(PAGE)[COMMANDS].text, WAIT_S)
    assert upgrading.run("streamsink --version", WAIT_S).endswith(f"version {streamsink.__version__}\n")
    looks = "import os, streamsink; print(*os.walk(os.path.dirname(streamsink.__file__)), sep='\\n')"
    said = upgrading.run(f'cd / && python -c "{looks}"', WAIT_S)
    assert str(tmp_path / "env") in said and "of_earlier" not in said
    kind = "import streamsink.clock as clock; print(hasattr(clock, 'OF_EARLIER'))"
    assert upgrading.run(f'cd / && python -c "{kind}"', WAIT_S).endswith("False\n")
