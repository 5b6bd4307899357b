"""Writing files for users: whole or not at all, never in place of a device, with one clear message where it fails."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ridgeline.errors import ScenarioError


@contextmanager
def whole_file(path: Path, option: str) -> Iterator[Callable[[str], None]]:
    """A function that writes the content of `path`, in one step; where it is not called nothing has changed.

    Raises `ScenarioError` at once where `path` cannot be written; `option` names it in the message. What must not be
    replaced (a terminal, a pipe, /dev/null) is written directly; of a link, what it stands for is replaced.
    """
    if _is_device(path):
        yield lambda text: _written(path, path, option, text)
        return
    with _told(path, option):
        target = path.resolve()
        temporary = _beside(target, path, option)

    def write(text: str) -> None:
        _written(temporary, path, option, text)
        with _told(path, option):
            os.replace(temporary, target)

    try:
        yield write
    finally:
        temporary.unlink(missing_ok=True)


def _written(file: Path, path: Path, option: str, text: str) -> None:
    with _told(path, option):
        file.write_bytes(text.encode("utf-8", "replace"))


@contextmanager
def _told(path: Path, option: str) -> Iterator[None]:
    """Errors of the operating system as one message."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:  # a full disk, a zero byte in a name, a circle of links
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
        raise ScenarioError(f"{option} {path}: cannot be written: {reason}") from None


def _is_device(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode)


def _beside(target: Path, path: Path, option: str) -> Path:
    if target.is_dir():
        raise ScenarioError(f"{option} {path}: is a directory, expected a file")
    if not target.parent.is_dir():
        raise ScenarioError(f"{option} {path}: no such directory {target.parent}")
    if target.exists() and not os.access(target, os.W_OK):
        raise ScenarioError(f"{option} {path}: cannot be written (read-only)")
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask()
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:80]}.", dir=target.parent)
    os.fchmod(handle, mode)
    os.close(handle)
    return Path(name)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
