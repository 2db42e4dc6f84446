"""LayerTrace -> exact parts. Equations only: nothing is kept, no device is told from another, no memory is shared."""

from .block import Block, proven_block
from .norms import Chain, FrozenNorm
from .parts import Parts

__all__ = ["Block", "Chain", "FrozenNorm", "Parts", "proven_block"]
