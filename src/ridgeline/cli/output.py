"""Writing answers: text or JSON, to standard output or, whole or not at all, to a file."""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import ScenarioError

if TYPE_CHECKING:
    from rich.console import RenderableType

    Renderables = Sequence[RenderableType]
else:
    Renderables = Sequence

PIPE_WIDTH = 120


class Sink:
    """Where one answer goes. Made before computing, so that an unwritable file is known first."""

    def __init__(self, out: Path | None, as_json: bool) -> None:
        self.as_json = as_json
        self._out = out
        self._temporary: Path | None = None

    def emit(self, data: Callable[[], dict[str, Any]], text: Callable[[], Sequence[RenderableType]]) -> None:
        """Write `data` (with --json) or `text`; only the one that is wanted is made."""
        if self.as_json:
            content = json.dumps(data(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
            self._write(content)
        elif self._out is None:
            _to_screen(text())
        else:
            self._write(_to_text(text()))

    def _write(self, content: str) -> None:
        if self._out is None:
            _tolerate_narrow_encodings()
            sys.stdout.write(content)
            sys.stdout.flush()
        elif self._temporary is None:
            self._out.write_text(content, encoding="utf-8")
        else:
            self._temporary.write_text(content, encoding="utf-8")
            os.replace(self._temporary, self._out)
            self._temporary = None


@contextmanager
def sink(out: Path | None, as_json: bool) -> Iterator[Sink]:
    """A place for the answer; raises at once if `out` cannot be written, leaves nothing behind on failure."""
    target = Sink(out, as_json)
    if out is not None and not _is_device(out):
        target._temporary = _temporary_beside(out)
    try:
        yield target
    finally:
        if target._temporary is not None:
            target._temporary.unlink(missing_ok=True)


def progress(text: str) -> None:
    """A line about what is going on, on standard error and only where a person looks at it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text[:PIPE_WIDTH]}" if text else "\r\033[K")
        sys.stderr.flush()


def leave_if_interrupted(unsearched: Sequence[str]) -> None:
    """Exit with the code of an interrupt, after what was found so far has been written."""
    if unsearched:
        import typer

        from ridgeline.cli import INTERRUPTED

        raise typer.Exit(INTERRUPTED)


def _is_device(out: Path) -> bool:
    """Whether `out` is something that must not be replaced by renaming (a terminal, a pipe, /dev/null)."""
    try:
        mode = out.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def _temporary_beside(out: Path) -> Path:
    try:
        if out.is_dir():
            raise ScenarioError(f"--out {out}: is a directory, expected a file")
        if not out.parent.is_dir():
            raise ScenarioError(f"--out {out}: no such directory {out.parent}")
        if out.exists() and not os.access(out, os.W_OK):
            raise ScenarioError(f"--out {out}: cannot be written (read-only)")
        mode = stat.S_IMODE(out.stat().st_mode) if out.exists() else 0o666 & ~_umask()
        handle, name = tempfile.mkstemp(prefix=f".{out.name}.", dir=out.parent)
        os.fchmod(handle, mode)
        os.close(handle)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ScenarioError(f"--out {out}: cannot be written: {reason}") from None
    return Path(name)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _tolerate_narrow_encodings() -> None:
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def _to_screen(parts: Sequence[RenderableType]) -> None:
    """Print; the text is made first, so that a closed pipe or a full disk is met by one write of our own."""
    from rich.console import Console

    _tolerate_narrow_encodings()
    seen = sys.stdout.isatty()
    # Narrower screens fold the lines of a table of this width, which hides nothing.
    console = Console(highlight=False)
    console.width = max(console.width, PIPE_WIDTH) if seen else PIPE_WIDTH
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    sys.stdout.write(capture.get() if seen else _without_margins(capture.get()))
    sys.stdout.flush()


def _to_text(parts: Sequence[RenderableType]) -> str:
    from io import StringIO

    from rich.console import Console

    buffer = StringIO()
    console = Console(file=buffer, width=PIPE_WIDTH, highlight=False, color_system=None)
    for part in parts:
        console.print(part)
    return _without_margins(buffer.getvalue())


def _without_margins(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
