"""Crop and flip: the draws as data, and the pixels they mean."""

import numpy as np
import pytest
import torch

from fedtwin.learning.crops import OUTCOMES, PADDING, PLACES, cut, draw_crops
from fedtwin.learning.data import Dataset
from fedtwin.learning.local import Images

random = np.random.default_rng(0)


def test_draws_are_a_pure_function_of_seed_device_round_and_position() -> None:
    found = draw_crops(3, 5, 7, 40, 2)
    assert found.shape == (2, 40) and np.array_equal(found, draw_crops(3, 5, 7, 40, 2))
    assert np.array_equal(found.ravel()[:30], draw_crops(3, 5, 7, 30, 1)[0])
    for other in (draw_crops(4, 5, 7, 40, 2), draw_crops(3, 6, 7, 40, 2), draw_crops(3, 5, 8, 40, 2), found[::-1]):
        assert (found != other).mean() > 0.9
    assert draw_crops(1, 2, 3, 6, 1).tolist() == [[59, 90, 44, 117, 107, 100]], "the same on every machine"


def test_every_outcome_is_as_likely_as_another() -> None:
    drawn = np.concatenate([draw_crops(0, device, round_, 100, 1)[0] for device in range(20) for round_ in range(50)])
    counts = np.bincount(drawn, minlength=OUTCOMES)
    assert len(counts) == OUTCOMES
    expected = len(drawn) / OUTCOMES
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi2 - (OUTCOMES - 1)) < 4 * (2 * (OUTCOMES - 1)) ** 0.5


@pytest.mark.parametrize("shape", [(3, 9, 12), (1, 3, 2)])
def test_a_cut_is_that_of_the_padded_image(shape: tuple[int, int, int]) -> None:
    images = torch.from_numpy(random.integers(1, 255, (OUTCOMES, *shape), np.uint8))
    found, inside = cut(images, torch.arange(OUTCOMES))
    padded = torch.nn.functional.pad(images, [PADDING] * 4)
    for crop in range(OUTCOMES):
        row, column = divmod(crop // 2, PLACES)
        expected = padded[crop, :, row : row + shape[1], column : column + shape[2]]
        expected = expected.flip(2) if crop % 2 else expected
        assert torch.equal(found[crop] * inside[crop], expected), crop


def test_what_lies_outside_is_the_mean_and_without_crops_nothing_changes() -> None:
    x = random.normal(1e6, 1.0, (20, 8, 8, 2)).astype(np.float32)
    images = Images(Dataset(x, np.zeros(20, np.int64), x[:1], np.zeros(1, np.int64)))
    plain = images.batch(torch.arange(5))
    middle = images.batch(torch.arange(5), torch.full((5,), (PADDING * PLACES + PADDING) * 2))
    assert torch.equal(plain, middle) and plain.stride() == middle.stride()
    corner = images.batch(torch.arange(5), torch.zeros(5, dtype=torch.int64))
    assert torch.equal(corner[:, :, 4:, 4:], plain[:, :, :4, :4])
    assert not corner[:, :, :4].any() and not corner[:, :, :, :4].any()
