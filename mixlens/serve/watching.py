"""Who follows a job of the served page: how far it is, in words and as a share, and why it is to be stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..base.errors import MixlensError
from ..base.steps import Step

if TYPE_CHECKING:
    from .jobs import Job


class StoppedError(MixlensError):
    """A job was cancelled, or took too long."""


class Watch:
    """Follows a job, and says why it is to be stopped: it was cancelled, or it takes longer than `seconds`."""

    def __init__(self, job: Job, seconds: float):
        self.job, self.seconds = job, seconds
        self.is_gathering = False  # then `gather` notes all there is

    def reason(self) -> str | None:
        """Why the job is to be stopped; None while it may go on."""
        if self.job.stop is None and self.job.seconds > self.seconds:
            self.job.stop = (
                f"stopped after {self.seconds:g} seconds, the most one text may take. Shorten it, or ask for less."
            )
        return self.job.stop

    def note(self, doing: str, share: float) -> None:
        """Writes down how far the job is, and stops it if it must not go on."""
        self.job.doing, self.job.share = doing, share
        reason = self.reason()
        if reason is not None and share < 1:
            raise StoppedError(reason)

    # - the steps of a question (work.Track)

    def plan(self, steps: Sequence[str]) -> None:
        """The steps that are to come."""
        self.job.steps, self.job.begun = list(steps), 0

    def next(self, text: str | None = None) -> None:
        """The next step begins; `text` says more of the first one."""
        if text is not None:
            self.job.steps[0] = text
        self.job.begun, self.job.within = self.job.begun + 1, ""
        self.note(self.job.steps[self.job.begun - 1], (self.job.begun - 1) / len(self.job.steps))

    def hear(self, step: Step) -> None:
        """How far the step is that runs. Its job may be stopped here, too."""
        if self.job.begun and not self.is_gathering:
            self.job.within = step.text
            self.note(self.job.doing, (self.job.begun - 1 + step.share) / len(self.job.steps))

    def gathered(self, doing: str, share: float) -> None:
        """What `gather` notes: the name of a step when it begins, then the name with how far the step is."""
        job, self.is_gathering = self.job, True
        if job.steps[job.begun : job.begun + 1] == [doing]:
            job.begun, job.within = job.begun + 1, ""
        elif job.begun and doing.startswith(f"{job.steps[job.begun - 1]}, "):
            job.within = doing.removeprefix(f"{job.steps[job.begun - 1]}, ")
        self.note(doing, share)

    def know(self, predictions: Sequence[tuple[str, float]]) -> None:
        self.job.known = list(predictions)
