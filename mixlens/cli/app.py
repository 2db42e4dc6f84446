"""All commands in one application. Nothing heavy is imported until a command runs, so `--help` answers at once."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import NoReturn

import typer

from ..base.errors import MixlensError, printable
from ..base.interrupts import interruptible
from . import explain as texts
from . import group, judge, lists, pages, papers, plot, runs
from . import why as answers

app = typer.Typer(
    cls=group.Commands,
    help="Which tokens flow into which in a Transformer, layer by layer, proven against the model itself.",
    epilog="Start with:  mixlens why 'A dull film, but the cast is wonderful.'",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# The order of the commands in the help.
app.command("why", epilog=answers.WHY_EXAMPLES)(answers.why)
app.command("explain", epilog=texts.EXPLAIN_EXAMPLE)(texts.explain)
app.command("data")(lists.data)
app.command("experiment", epilog=papers.EXPERIMENT_EXAMPLE, cls=papers.ExperimentCommand)(papers.experiment)
app.command("reproduce", epilog=papers.REPRODUCE_EXAMPLE)(papers.reproduce)
app.command("judge", epilog=judge.JUDGE_EXAMPLE)(judge.judge)
app.command("run", epilog=runs.RUN_EXAMPLE)(runs.run)
app.command("summarize", epilog=runs.SUMMARIZE_EXAMPLE)(runs.summarize)
app.command("map", epilog=texts.MAP_EXAMPLE)(texts.map_)
app.command("compare", epilog=texts.COMPARE_EXAMPLE)(texts.compare)
app.command("plot", epilog=plot.PLOT_EXAMPLES)(plot.plot)
app.command("report", epilog=pages.REPORT_EXAMPLES)(pages.report)
app.command("serve", epilog=pages.SERVE_EXAMPLE)(pages.serve)
app.command("methods")(lists.methods)
app.command("families")(lists.families)
app.command("check", epilog=lists.CHECK_EXAMPLE)(lists.check)


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # a disk that takes no more


def main() -> None:
    """Errors are one line and exit code 2, never a traceback; Ctrl-C is one line and exit code 130, whenever it
    comes."""
    with interruptible():
        try:
            try:
                app()
            finally:  # what was printed is written now: Python itself would do it too late for an error in one line
                if sys.stdout is not None:
                    sys.stdout.flush()
        except MixlensError as error:
            _end(" ".join(map(printable, str(error).splitlines())))
        except BrokenPipeError:
            _drop_output()
            sys.exit(1)
        except OSError as error:
            _drop_output()
            reason = printable(error.strerror or str(error))
            if error.filename is not None:
                _end(f"the system refuses: {reason} ({str(error.filename)!r}).")
            if error.errno in FULL:
                _end(f"the output cannot be written: {reason}. Make room, or send it to another place.")
            _end(f"the system refuses: {reason}.")


def _end(line: str) -> NoReturn:
    print(f"mixlens: {line}", file=sys.stderr)
    sys.exit(2)


def _drop_output() -> None:
    """What could not be written is not tried again when Python ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a stream without a file has nothing to drop
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
