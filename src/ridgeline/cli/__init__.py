"""The command line: one file a verb, nothing heavy imported before a verb runs.

Exit codes: 0 an answer, 1 a fault of Ridgeline's own, 2 wrong use or input, 3 infeasible, 130 interrupted.
Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

INTERNAL, USAGE, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `ridgeline`; leaves with one of the exit codes above."""
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; says what went wrong in one piece, never a traceback.

    `RIDGELINE_DEBUG=1` lets an unexpected error through with its traceback.
    """
    from ridgeline.errors import RidgelineError

    try:
        from ridgeline.cli.app import app

        code = app(args=list(arguments), prog_name="ridgeline", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        if code == INTERRUPTED:  # typer turns the interrupt into its exit code
            _say("interrupted")
        return code if isinstance(code, int) else 0
    except RidgelineError as error:
        _say(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`head`, a pager) has seen enough.
        _silence()
        return 0
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
            _say(f"error: the answer cannot be written: {error.strerror}")
            _silence()
            return USAGE
        if error.filename is not None and error.strerror:
            _say(f"error: {os.fsdecode(error.filename)}: {error.strerror}")
            return USAGE
        return _other(error, arguments)
    except Exception as error:
        return _other(error, arguments)


def _other(error: Exception, arguments: Sequence[str]) -> int:
    """A usage error of the argument parser, an abort, or a fault of our own."""
    if type(error).__name__ == "NoArgsIsHelpError":
        _say(error.format_message())  # type: ignore[attr-defined]
        return USAGE
    if type(error).__name__ == "NoArgsIsHelpError":
        _say(str(error))
        return USAGE
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        context = getattr(error, "ctx", None)
        hint = f"\ntry `{context.command_path} --help`" if context is not None else "\ntry `ridgeline --help`"
        _say(f"error: {error.format_message()}{hint}")
        return int(error.exit_code)
    if type(error).__name__ == "Abort":
        _say("interrupted")
        return INTERRUPTED
    if os.environ.get("RIDGELINE_DEBUG", "") not in ("", "0"):
        raise error
    from ridgeline import __version__

    text = " ".join(str(error).split())[:200]
    _say(f"internal error in ridgeline {__version__}: {type(error).__name__}: {text}")
    _say("this is our fault, not yours: please open an issue with the command line and the input")
    _say("RIDGELINE_DEBUG=1 shows where it happened")
    return INTERNAL


def _silence() -> None:
    """Keep the interpreter from complaining when it flushes standard output at the end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # no file stands behind it
        return


def _say(text: str) -> None:
    """One message to standard error, whatever its encoding can take and without what would move the cursor."""
    if sys.stderr is None:
        return
    plain = "".join(sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1] for sign in text)
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    print(plain.encode(encoding, "replace").decode(encoding), file=sys.stderr)  # noqa: T201
