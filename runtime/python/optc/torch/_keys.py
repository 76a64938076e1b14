"""The former name of _group_keys, which pickles of optimizers contain."""
from ._group_keys import GroupKeys as Keys

__all__ = ["Keys"]
