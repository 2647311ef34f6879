"""Who holds which samples, and which of them a device trains on in a round. Pure functions of (seed, device, round).

Every device owns the same number of samples; their classes are mixed evenly (IID) or by a Dirichlet draw (non-IID, Section V;
Hsu et al., 2019). Samples are dealt disjointly while a class lasts; a small data set is then shared with overlap.
"""

import numpy as np
from numpy.typing import NDArray

from fedtwin.draws import MASK, Purpose, stream
from fedtwin.errors import FedtwinError

Indices = NDArray[np.int64]


def generator(seed: int, purpose: Purpose, device: int, round_: int = 0) -> np.random.Generator:
    """A generator of its own for every (seed, purpose, device, round)."""
    key = stream(seed, int(purpose), device)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, round_ & MASK]))


def class_counts(mix: NDArray[np.float64], total: int) -> Indices:
    """Whole numbers closest to mix × total that add up to total: the largest remainders are rounded up."""
    exact = mix * total
    counts = np.floor(exact).astype(np.int64)
    order = np.argsort(counts - exact, kind="stable")
    counts[order[: total - int(counts.sum())]] += 1
    return counts


def class_mix(seed: int, device: int, classes: int, gamma: float | None) -> NDArray[np.float64]:
    """q ~ Dir(γ1 · 1), or the even mix for None."""
    if gamma is None:
        return np.full(classes, 1.0 / classes)
    gammas = generator(seed, Purpose.PARTITION, device).standard_gamma(gamma, classes)
    total = gammas.sum()
    if total > 0.0:
        return np.asarray(gammas / total)
    only = int(generator(seed, Purpose.PARTITION, device, 1).integers(classes))
    return np.asarray(np.eye(classes)[only])


def among_present(mix: NDArray[np.float64], present: NDArray[np.bool_]) -> NDArray[np.float64]:
    """A class nobody has samples of gets no share; if that leaves nothing, the others share alike."""
    left = np.where(present, mix, 0.0)
    return np.asarray(left / left.sum() if left.sum() > 0.0 else present / present.sum())


def deal(labels: NDArray[np.integer], seed: int, devices: int, owned: int, gamma: float | None) -> list[Indices]:
    """The samples of every device."""
    classes = int(labels.max()) + 1
    shuffle = generator(seed, Purpose.PARTITION, devices)
    decks = [shuffle.permutation(np.flatnonzero(labels == label)) for label in range(classes)]
    present = np.array([len(deck) > 0 for deck in decks])
    dealt = [0] * classes
    shares = []
    for device in range(devices):
        hand = []
        mix = among_present(class_mix(seed, device, classes, gamma), present)
        for label, count in enumerate(class_counts(mix, owned)):
            if count == 0:
                continue
            places = (dealt[label] + np.arange(count)) % len(decks[label])
            hand.append(decks[label][places])
            dealt[label] += int(count)
        shares.append(np.concatenate(hand))
    return shares


def natural_shares(clients: Indices | None, devices: int, dataset: str) -> list[Indices]:
    """The samples as the data has them: one client, one device."""
    if clients is None:
        raise FedtwinError(
            f"learning.partition = 'natural': learning.dataset = {dataset!r} has no array client, nor a file per device."
        )
    found = int(clients.max()) + 1 if len(clients) else 0
    if found != devices:
        raise FedtwinError(
            f"learning.partition = 'natural': learning.dataset = {dataset!r} has {found} clients, and fleet.devices = "
            f"{devices}."
        )
    return [np.flatnonzero(clients == client) for client in range(devices)]


def held_by_several(shares: list[Indices], samples: int) -> int:
    """How many samples of a data set more than one device owns, or one device more than once."""
    return int((np.bincount(np.concatenate(shares), minlength=samples) > 1).sum())


def batch_sizes(samples: int, batch_size: int, *, pairs: bool = False) -> list[int]:
    """How an epoch is cut: full batches and a last one, never of a single sample, of which BatchNorm knows no variance.

    Batches of two leave one over of an odd number; ``pairs``, for networks that cannot train on it: it joins the last two.
    """
    full, rest = divmod(samples, batch_size)
    sizes = [batch_size] * full + ([rest] if rest else [])
    if rest == 1 and full and batch_size > 2:
        sizes[-2:] = [batch_size - 1, 2]
    if rest == 1 and full and batch_size == 2 and pairs:
        sizes[-2:] = [3]
    return sizes


def training_order(share: Indices, seed: int, device: int, round_: int, samples: int, epochs: int) -> Indices:
    """D_n of a device's samples, drawn afresh for the round, in a new order every epoch: shape (epochs, samples)."""
    rng = generator(seed, Purpose.TRAINING, device, round_)
    chosen = rng.choice(share, size=samples, replace=samples > len(share))
    return np.stack([rng.permutation(chosen) for _ in range(epochs)])
