"""Syntax trees, made by one thread at a time.

Python before 3.11.8 and 3.12.2 counts their depth for all threads together: where the collector of garbage lets another thread
make one meanwhile, both fail (python/cpython#106905). NumPy reads the header of an array on disk as a literal, by such a tree.
"""

import ast
from threading import RLock

TREES = RLock()
"""Held by whoever makes one, or has NumPy open an array."""


def tree_of(source: str | bytes) -> ast.Module:
    with TREES:
        return ast.parse(source)
