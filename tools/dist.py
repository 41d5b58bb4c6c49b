#!/usr/bin/env python3
"""Build what a package index takes, and check it: `make dist`.

    dist.py [--url URL] [--out FOLDER]

The folder gets the sdist, the wheel, and a bill of materials in CycloneDX's form: what the library needs at run time,
in the versions of this environment. An index shows the README without the files beside it. So its links lead to the
repository, at the tag of this version; --url says where that is, without which the links stay as they are, and nothing
is fit to be published. The environment has `build`, `twine` and `cyclonedx-py` (the extra `test`).
"""

import argparse
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib as _toml
else:
    import tomli as _toml  # `build` brings it

ROOT = Path(__file__).resolve().parent.parent
# What the sdist is made of, beside the library itself.
_BESIDE = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "MANIFEST.in")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)\s]+)\)")


def version() -> str:
    """As pyproject.toml has it."""
    [found] = re.findall(r'^version = "([^"]+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return str(found)


def with_links(text: str, url: str, tag: str) -> str:
    """The text of a page with its relative links led to the repository; those of pictures to the files themselves."""

    def led(found: re.Match[str]) -> str:
        kind = "raw" if found[1] else "blob"
        return f"{found[1]}[{with_links(found[2], url, tag)}]({url}/{kind}/{tag}/{found[3]})"

    return _LINK.sub(led, text)


def with_urls(pyproject: str, url: str) -> str:
    """The text of pyproject.toml with the addresses that an index shows."""
    pages = {
        "Homepage": url,
        "Documentation": f"{url}/blob/v{version()}/docs/README.md",
        "Changelog": f"{url}/blob/v{version()}/CHANGELOG.md",
        "Issues": f"{url}/issues",
    }
    lines = "".join(f'{name} = "{address}"\n' for name, address in pages.items())
    return pyproject.replace("[project.scripts]\n", f"[project.urls]\n{lines}\n[project.scripts]\n", 1)


def copy_sources(to: Path, url: str) -> None:
    """The files that an sdist is made of, in another folder: a build leaves folders beside what it builds."""
    library = (path for path in (ROOT / "streamsink").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    for path in (*library, *(ROOT / name for name in _BESIDE)):
        target = to / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    if url:
        for name, change in (
            ("README.md", lambda text: with_links(text, url, f"v{version()}")),
            ("pyproject.toml", lambda text: with_urls(text, url)),
        ):
            (to / name).write_text(change((to / name).read_text(encoding="utf-8")), encoding="utf-8")


def build(out: Path, url: str = "") -> list[Path]:
    """The sdist and the wheel in `out`, as `twine check --strict` lets them pass.

    Raises CalledProcessError, with what the program has said.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy_sources(Path(folder), url)
        _run("build", "--outdir", out, folder)
    made = sorted([*out.glob(f"*{version()}.tar.gz"), *out.glob(f"*{version()}-*.whl")])
    _run("twine", "check", "--strict", *made)
    return made


def bill_of_materials() -> dict:
    """What the library needs at run time, with all that this needs, as it is installed in this environment.

    cyclonedx-py lists the whole environment, with the tools of the tests, and as dependencies what any extra of a
    package may ask for. Of that stays what is asked for; what only the library's own extras need is `optional`.
    """
    bom = json.loads(_run("cyclonedx_py", "environment", "--pyproject", ROOT / "pyproject.toml", sys.executable))
    project = _toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = _needed(project["dependencies"])
    extras = [each for name, of in project["optional-dependencies"].items() if name != "test" for each in of]
    wanted = needed | _needed(extras)
    kept = {each["bom-ref"]: canonicalize_name(each["name"]) for each in bom["components"]}
    kept = {ref: name for ref, name in kept.items() if name in wanted}
    bom["components"] = [each for each in bom["components"] if each["bom-ref"] in kept]
    for each in bom["components"]:
        each["scope"] = "required" if kept[each["bom-ref"]] in needed else "optional"
    root = bom["metadata"]["component"]["bom-ref"]
    bom["dependencies"] = [
        {**each, "dependsOn": [ref for ref in each.get("dependsOn", ()) if ref in kept]}
        for each in bom["dependencies"]
        if each["ref"] in kept or each["ref"] == root
    ]
    return bom


def _needed(requirements: list[str]) -> set[str]:
    """Names of the packages that these lead to here, in the form in which names are compared."""
    to_visit, seen, found = [Requirement(each) for each in requirements], set(), set()
    while to_visit:
        each = to_visit.pop()
        name, extras = canonicalize_name(each.name), frozenset(each.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found.add(name)
        for said in importlib.metadata.requires(name) or ():
            further = Requirement(said)
            holds = [further.marker is None or further.marker.evaluate({"extra": extra}) for extra in (*extras, "")]
            to_visit += [further] if any(holds) else []
    return found


def _run(module: str, *arguments: object) -> str:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return done.stdout


def main(argv: list) -> None:
    parser = argparse.ArgumentParser(
        prog="dist.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="", help="address of the public repository")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    given = parser.parse_args(argv)
    try:
        made = build(given.out, given.url.rstrip("/"))
        bill = given.out / f"streamsink-{version()}.cdx.json"
        bill.write_text(json.dumps(bill_of_materials(), indent=1) + "\n", encoding="utf-8")
    except subprocess.CalledProcessError as failed:
        sys.exit(f"{' '.join(failed.cmd)}\n{failed.stdout}{failed.stderr}")
    print(*made, bill, sep="\n")
    if not given.url:
        print("Without --url the links of the README lead nowhere on an index: do not publish these files.")


if __name__ == "__main__":
    main(sys.argv[1:])
