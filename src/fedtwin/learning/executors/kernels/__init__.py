# mypy: ignore-errors
"""Triton kernels for many small networks at once: every kernel has the client as one axis of its grid.

One client's convolution on 32 images is too small for a large GPU, and libraries have no fast convolution with other weights
for every client; with the clients side by side the matrix units are busy. Activations are (client, image, height, width,
channel) in bfloat16, sums are float32. ``counts`` holds how many images of each client are real: rows beyond are neither
computed nor summed and come out as zeros, so a ragged last batch is exact.
"""

from fedtwin.learning.executors.kernels.batch_norm import BatchNorm, normalise
from fedtwin.learning.executors.kernels.convolution import Convolution
from fedtwin.learning.executors.kernels.descent import descend, load
from fedtwin.learning.executors.kernels.group_norm import GroupNorm

__all__ = ["BatchNorm", "Convolution", "GroupNorm", "descend", "load", "normalise"]
