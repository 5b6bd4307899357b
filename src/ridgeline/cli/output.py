"""Writing answers: text or JSON, to standard output or, whole or not at all, to a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import ScenarioError
from ridgeline.files import whole_file

if TYPE_CHECKING:
    from rich.console import RenderableType

    Renderables = Sequence[RenderableType]
else:
    Renderables = Sequence

PIPE_WIDTH = 120


class Sink:
    """Where one answer goes. Made before computing, so that an unwritable file is known first."""

    def __init__(self, as_json: bool, write: Callable[[str], None] | None = None) -> None:
        self.as_json = as_json
        self._write = write  # into a file; None: to standard output

    def emit(self, data: Callable[[], dict[str, Any]], text: Callable[[], Sequence[RenderableType]]) -> None:
        """Write `data` (with --json) or `text`; only the one that is wanted is made."""
        if self.as_json:
            content = json.dumps(data(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
            (self._write or _to_stdout)(content)
        elif self._write is None:
            _to_screen(text())
        else:
            self._write(_to_text(text()))


@contextmanager
def sink(out: Path | None, as_json: bool) -> Iterator[Sink]:
    """A place for the answer; raises at once if `out` cannot be written, leaves nothing behind on failure."""
    if out is None:
        yield Sink(as_json)
        return
    with whole_file(out, "--out") as write:
        yield Sink(as_json, write)


def progress(text: str) -> None:
    """A line about what is going on, on standard error and only where a person looks at it."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text[:PIPE_WIDTH]}" if text else "\r\033[K")
        sys.stderr.flush()


def leave_if_interrupted(unsearched: Sequence[str]) -> None:
    """Exit with the code of an interrupt, after what was found so far has been written."""
    if unsearched:
        import typer

        from ridgeline.cli import INTERRUPTED

        raise typer.Exit(INTERRUPTED)


def _to_stdout(content: str) -> None:
    if sys.stdout is None:
        raise ScenarioError("standard output is closed; write the answer to a file with --out FILE")
    _tolerate_narrow_encodings()
    sys.stdout.write(content)
    sys.stdout.flush()


def _tolerate_narrow_encodings() -> None:
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def _to_screen(parts: Sequence[RenderableType]) -> None:
    """Print; the text is made first, so that a closed pipe or a full disk is met by one write of our own."""
    from rich.console import Console

    seen = sys.stdout is not None and sys.stdout.isatty()
    # Narrower screens fold the lines of a table of this width, which hides nothing.
    console = Console(highlight=False)
    console.width = max(console.width, PIPE_WIDTH) if seen else PIPE_WIDTH
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    _to_stdout(capture.get() if seen else _without_margins(capture.get()))


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
