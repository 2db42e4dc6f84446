"""The option that writes over files; `files.refuse_foreign` is the rule."""

from __future__ import annotations

from typing import Annotated

import typer

Force = Annotated[bool, typer.Option("--force", help="Write over a file that is no result or page of mixlens, too.")]
