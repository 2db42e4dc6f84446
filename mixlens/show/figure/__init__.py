"""Map, Attribution, Records -> pictures for papers."""

from __future__ import annotations

from .drawing import *  # noqa: F403
