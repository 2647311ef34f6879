"""Whoever seeds PyTorch's generator has it alone, and leaves it as it was."""

import threading

import torch

from fedtwin.learning.chance import seeded
from fedtwin.learning.models import build_model


def test_the_same_seed_draws_the_same_and_leaves_nothing() -> None:
    before = torch.get_rng_state()
    drawn = []
    for _ in range(2):
        with seeded(5):
            drawn.append(torch.rand(3))
            with seeded(6):
                torch.rand(1)
            drawn.append(torch.rand(3))
    assert torch.equal(drawn[0], drawn[2]) and torch.equal(drawn[1], drawn[3])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_network_is_the_same_while_another_thread_seeds() -> None:
    """Runs that share a GPU: one is made while others train."""
    expected = build_model("mlp", (8, 8, 1), 10, 3).state_dict()
    ended = threading.Event()

    def trains() -> None:
        while not ended.is_set():
            with seeded(1):
                torch.rand(100)

    thread = threading.Thread(target=trains)
    thread.start()
    try:
        for _ in range(300):
            found = build_model("mlp", (8, 8, 1), 10, 3).state_dict()
            assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    finally:
        ended.set()
        thread.join()
