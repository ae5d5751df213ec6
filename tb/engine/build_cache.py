"""A cache of builds, found by the hash of all that goes in.

Every build lives in `build/cache/<hash>/`. It is made in a temporary folder and renamed when it is
complete, under a lock of its own, so parallel processes share one build and never see half of one.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

__all__ = ["cache_directory", "cached", "digest"]

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE = 2.0
"""Wall seconds of silence while another process builds the same."""


def cache_directory() -> Path:
    """Where builds are kept: `$GLASSNPU_CACHE`, else `build/cache` of the checkout."""
    return Path(os.environ.get("GLASSNPU_CACHE", REPOSITORY / "build" / "cache"))


def digest(parts: Iterable[str | bytes]) -> str:
    """A name for what `parts` say together."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()[:32]


@contextmanager
def _alone(key: str, what: str) -> Iterator[None]:
    """Hold the lock of `key`; say so when another process makes this one wait."""
    lock = FileLock(cache_directory() / f"{key}.lock")
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        print(f"waits for another process that builds {what}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def cached(key: str, make: Callable[[Path], None], what: str = "the same") -> Path:
    """The folder of `key`; `make` fills it in a temporary place if it does not exist.

    `what` is built, in words. What a killed build of this key left behind is removed first.
    """
    root = cache_directory()
    final = root / key
    if final.is_dir():
        return final
    root.mkdir(parents=True, exist_ok=True)
    with _alone(key, what):
        for left in root.glob(f"making-{key}-*"):
            shutil.rmtree(left, ignore_errors=True)
        if not final.is_dir():
            with tempfile.TemporaryDirectory(dir=root, prefix=f"making-{key}-") as scratch:
                half = Path(scratch) / "build"
                half.mkdir()
                make(half)
                half.rename(final)
    return final
