"""How long names may be: each store has limits of its own, in bytes. Driver and executor."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NameLimits:
    """Most bytes of one name within a path, and of a whole path; None where the store has no such limit.

    uncounted: what a path begins with that the store does not count, such as a scheme and a bucket.
    """

    name: int | None = None
    path: int | None = None
    uncounted: str = ""

    def exceeded_by(self, path: str) -> tuple[int, int] | None:
        """(bytes found, bytes allowed) of what is too long in the path, the name or the path itself; None when all fits."""
        counted = path.removeprefix(self.uncounted)
        longest = max((size_of(name) for name in counted.split("/")), default=0)
        if self.name is not None and longest > self.name:
            return longest, self.name
        if self.path is not None and size_of(counted) > self.path:
            return size_of(counted), self.path
        return None


def size_of(name: str) -> int:
    """Bytes of a name as stores keep it."""
    return len(name.encode("utf-8", "surrogatepass"))
