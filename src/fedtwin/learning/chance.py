"""PyTorch's own chance. Its generator is global, and runs that share a GPU are threads: whoever seeds it has it alone."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock

import torch

_ALONE = RLock()


@contextmanager
def seeded(seed: int, devices: Sequence[str] = ()) -> Iterator[None]:
    """What is drawn inside is drawn from this seed, here and on these GPUs; afterwards their generators are as they were."""
    with _ALONE, torch.random.fork_rng(devices=list(devices)):
        torch.manual_seed(seed)
        yield
