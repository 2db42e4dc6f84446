"""Ctrl-C ends a command with one line and exit code 130, whenever it comes. Imports nothing of mixlens."""

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
    """Ctrl-C within this block ends the process with one line and exit code 130. A process that ignores Ctrl-C (nohup)
    or handles it continues to do so."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        try:
            signal.signal(signal.SIGINT, _interrupt)
        except ValueError:  # only the main thread gets signals, and another one cannot set the handler
            ours = False
    try:
        yield
    except KeyboardInterrupt:
        _stop()
    except SystemExit as end:
        # typer turns a Ctrl-C that nobody handled into this exit code without a message.
        if end.code != INTERRUPTED or not isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
            raise
        _stop()
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Handle Ctrl-C. A module that is interrupted while it is imported may hide the interrupt or raise any error;
    nothing has been written at that time, so the process ends here. Later the code that runs puts things in order
    first."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, LINE.encode())
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


def _stop() -> NoReturn:
    sys.stderr.write(LINE)
    sys.exit(INTERRUPTED)
