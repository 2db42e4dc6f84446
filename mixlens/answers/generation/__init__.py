"""What each written word rests on: a prompt and what was written after it -> Generation."""

from .explaining import explain
from .value import Generation

__all__ = ["Generation", "explain"]
