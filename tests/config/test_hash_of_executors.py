"""How a training is computed on the CPU changes no number and no hash; CUDA gives other numbers, and another hash."""

from itertools import product
from typing import Any

from fedtwin.config import config_hash, load_config

CPU = [
    *product(["auto", "serial", "processes"], ["auto", "cpu"], [0, 3]),
]
CUDA = [("cuda", "auto", 0), ("cuda", "cuda", 2), ("auto", "cuda", 0)]


def hash_of(executor: str, device: str, workers: int, **changes: Any) -> str:
    settings = {"learning.executor": executor, "learning.device": device, "learning.workers": workers}
    return config_hash(load_config(overrides={**settings, **changes}))


def test_one_hash_for_the_cpu_and_one_for_cuda() -> None:
    cpu, cuda = ({hash_of(*way) for way in ways} for ways in (CPU, CUDA))
    assert len(cpu) == len(cuda) == 1 and cpu != cuda


def test_what_is_learned_still_counts() -> None:
    assert len({hash_of("serial", "cpu", 0, **{"learning.mixing": mixing}) for mixing in (0.5, 0.6)}) == 2
