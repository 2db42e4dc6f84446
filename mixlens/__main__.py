"""`python -m mixlens` and `mixlens`: the command line. Nothing is imported before Ctrl-C is watched for."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130  # the exit code of a command that Ctrl-C ended
LINE = "mixlens: stopped.\n"


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C within this block ends the process with one line and exit code 130."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # whoever ignores Ctrl-C (nohup) or handles it goes on to do so
        try:
            signal.signal(signal.SIGINT, _interrupt)
        except ValueError:  # this is not the main thread, which alone gets signals
            before = None
    try:
        yield
    except KeyboardInterrupt:
        _stop()
    except SystemExit as end:
        # typer turns a Ctrl-C that nobody handled into this code, and says nothing.
        said_nothing = isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt)
        if end.code != INTERRUPTED or not said_nothing:
            raise
        _stop()
    finally:
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, before)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """A module that is interrupted while it is imported may hide that, or raise anything: nothing is at stake yet, so the process
    ends here. Later whoever is at work puts things in order first."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, LINE.encode())
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


def _stop() -> NoReturn:
    sys.stderr.write(LINE)
    sys.exit(INTERRUPTED)


def main() -> None:
    with interruptible():
        from .cli.app import main as command

        command()


if __name__ == "__main__":
    main()
