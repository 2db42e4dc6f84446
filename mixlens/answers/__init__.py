"""`why`: the answer first. Which words made the model say this, and can that be trusted for this text?"""

from .answering import why
from .value import Why, from_dict

__all__ = ["Why", "from_dict", "why"]
