"""`MIXLENS_FAST=off` in the environment: everything is computed by the plain forms."""

from __future__ import annotations

import os


def is_off() -> bool:
    return os.environ.get("MIXLENS_FAST", "") == "off"
