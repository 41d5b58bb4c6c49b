"""A daemon for Spark's Python workers whose tasks start sooner. Runs on the executors.

Set ``spark.python.daemon.module=streamsink.spark.worker_daemon`` to use it.

Before each task PySpark's worker lets all importers forget what they know (``importlib.invalidate_caches()``). On
CPython up to 3.12 the importer of a zip file then reads the whole directory of its archive again, and Spark puts
``pyspark.zip`` on the workers' path once for each package of it: this takes 0.3 to 0.7 s of a small task. A PySpark
that pip installed has the same modules in plain files beside that archive. So this daemon takes the archives off the
path before anything of PySpark is imported, and is PySpark's own daemon from there on. Zip files of ``--py-files`` and
``addPyFile`` are left as they are.
"""

import importlib.machinery
import os
import re
import sys
from collections.abc import Callable, Sequence

MODULE = "streamsink.spark.worker_daemon"
_SHIPPED = re.compile(r"pyspark\.zip|py4j-.*\.zip|spark-core_.*\.jar")
_SPARK, _GATEWAY = "pyspark", "py4j"


def without_shipped_archives(path: Sequence[str], found: Callable[[str, list[str]], str | None]) -> list[str]:
    """``path`` without the archives and jars that PySpark ships, where the same PySpark is on the path as plain files.

    found: called as ``found(package, path)``; returns the folder of a package on a path, or None.

    Returns the path unchanged when PySpark is only in the archive, or when the plain files are another PySpark than the
    archive's: the archive belongs to the Spark that started this worker.
    """
    rest = [entry for entry in path if not _is_shipped(entry)]
    home = found(_SPARK, rest)
    if home is None or found(_GATEWAY, rest) is None:
        return list(path)
    home = os.path.realpath(home)
    foreign = [
        entry for entry in path if _is_shipped(entry) and os.path.commonpath([home, os.path.realpath(entry)]) != home
    ]
    return list(path) if foreign else rest


def _is_shipped(entry: str) -> bool:
    """Whether this is pyspark.zip, py4j-<version>-src.zip, or Spark's own jar, which holds no Python."""
    return _SHIPPED.fullmatch(os.path.basename(entry)) is not None


def _found(package: str, path: list[str]) -> str | None:
    spec = importlib.machinery.PathFinder.find_spec(package, path)
    return os.path.dirname(spec.origin) if spec is not None and spec.origin else None


def main() -> None:
    """What ``python -m pyspark.daemon`` does, on a shorter path."""
    sys.path[:] = without_shipped_archives(sys.path, _found)
    for entry in [known for known in sys.path_importer_cache if known not in sys.path]:
        del sys.path_importer_cache[entry]
    # The module pickle imports ``org.python.core``, Jython's classes, and has found a folder of Spark's jar instead.
    sys.modules.pop("org", None)
    from pyspark import daemon

    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
