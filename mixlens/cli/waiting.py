"""A word about waiting: on a terminal, a spinner with the step that is under way, erased when the wait ends; elsewhere
a line for each step of a long wait."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from ..show.encoding import can_show

if TYPE_CHECKING:
    from ..base.steps import Step

PATIENCE = 0.15  # seconds of silence before something is said; Python itself took as long before
TICK = 0.1  # seconds between two pictures
SLOW = 2.0  # seconds after which the time is told, too, and a wait is told of where there is no terminal
OFTEN = 10.0  # seconds between two lines on the same step, where there is no terminal
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PLAIN_FRAMES = "|/-\\"
ERASE = "\r\x1b[K"


def has_terminal() -> bool:
    """Whether errors go to a terminal that erases a line: a dumb one, or one that wants plain letters, is told in
    lines."""
    plain = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
    return not plain and sys.stderr is not None and sys.stderr.isatty()


class Spinner:
    """Says on a terminal what is waited for, from `patience` seconds on; elsewhere, with `lines`, in lines from 2 s
    on."""

    def __init__(self, step: str, *, patience: float = PATIENCE, shown: bool | None = None, lines: bool = False):
        self.step, self.within, self._patience = step, "", patience
        self._over, self._drawn, self._lock = threading.Event(), False, threading.Lock()
        visible = has_terminal() if shown is None else shown and has_terminal()
        told = self._turn if visible else self._speak if lines and sys.stderr is not None else None
        self._thread = None if told is None else threading.Thread(target=told, daemon=True)

    def __enter__(self) -> Spinner:
        self._began = time.perf_counter()
        if self._thread is not None:
            self._thread.start()
        return self

    def tell(self, step: str) -> None:
        """What is waited for now."""
        self.step, self.within = step, ""

    def hear(self, step: Step) -> None:
        """How far what is waited for is."""
        self.within = step.text

    def end(self) -> None:
        """The wait is over: the line is erased, and none is written any more."""
        self._over.set()
        with self._lock:
            if self._drawn:
                sys.stderr.write(ERASE)
                sys.stderr.flush()
                self._drawn = False

    def __exit__(self, *_: Any) -> None:
        self.end()

    @property
    def _now(self) -> str:
        """The step, and how far it is where that is known."""
        return f"{self.step}, {self.within}" if self.within else self.step

    def _turn(self) -> None:
        frames = FRAMES if can_show(sys.stderr, FRAMES, replaced=False) else PLAIN_FRAMES
        wait, turn = self._patience, 0
        while not self._over.wait(wait):
            self._draw(frames[turn % len(frames)])
            wait, turn = TICK, turn + 1

    def _speak(self) -> None:
        """One line when a step begins, and one every ten seconds on how far it is."""
        wait, said, since = SLOW, "", 0.0
        while not self._over.wait(wait):
            wait, now = TICK, time.perf_counter() - self._began
            if said != self.step or now - since >= OFTEN:
                said, since = self.step, now
                self._say(now)

    def _say(self, seconds: float) -> None:
        with self._lock:
            if not self._over.is_set():
                print(line_of("", self._now, seconds).strip(), file=sys.stderr, flush=True)

    def _draw(self, frame: str) -> None:
        with self._lock:
            if not self._over.is_set():
                sys.stderr.write(f"{ERASE}{line_of(frame, self._now, time.perf_counter() - self._began)}")
                sys.stderr.flush()
                self._drawn = True


def line_of(frame: str, step: str, seconds: float) -> str:
    """What the spinner writes: a frame, the step, and the seconds of a long wait."""
    return f"{frame} mixlens: {step}" + (f" ({seconds:.0f} s)" if seconds >= SLOW else "")
