"""`python -m mixlens` and `mixlens`: the command line. Only the handling of Ctrl-C is imported before it is in
place."""

from __future__ import annotations

from .base.interrupts import interruptible


def main() -> None:
    with interruptible():
        from .cli.app import main as command

        command()


if __name__ == "__main__":
    main()
