"""Plain functions, compiled as they are (Numba), so that a formula is written once and serves every engine with the same bits.

There are no decorators on the formulas, and nothing here is imported where nothing is compiled. Floating point is strict: no
reordering, no fused operations, and the mathematical functions are those of the C library that Python's ``math`` calls as
well. fedtwin's own functions are compiled as they stand; of the user's only those that are understood completely
(``subset``), with the errors that Python would raise.
"""

from fedtwin.compiling.cache import cache_folder, folder_of, is_kept, keep_on_disk
from fedtwin.compiling.subset import Reading
from fedtwin.compiling.translate import can_compile, compiled, compiled_as, compiled_together, is_ours, stamp, why_not

__all__ = [
    "Reading",
    "cache_folder",
    "can_compile",
    "compiled",
    "compiled_as",
    "compiled_together",
    "folder_of",
    "is_kept",
    "is_ours",
    "keep_on_disk",
    "stamp",
    "why_not",
]
