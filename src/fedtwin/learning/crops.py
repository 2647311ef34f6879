"""Random crop and flip of images: drawn as data, so that the same pixels are cut out wherever a training is computed.

An image is padded by four pixels on every side, cut to its size again at a random place, and mirrored every second time (He et
al., 2016, Section 4.2). The padding is the mean of the channel, which is 0 when an image is normalised.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtwin.draws import GOLDEN, Purpose, mix, stream, word

PADDING = 4
PLACES = 2 * PADDING + 1
OUTCOMES = PLACES * PLACES * 2

Crops = NDArray[np.uint8]
"""One number per sample: (row · 9 + column) · 2 + mirrored, row and column being where the cut begins in the padded image."""


def draw_crops(seed: int, device: int, round_: int, samples: int, epochs: int) -> Crops:
    """Of all samples of a training, (epochs, samples): each a pure function of (seed, device, round, position)."""
    start = word(stream(seed, int(Purpose.AUGMENTATION), device), round_)
    counters = np.arange(1, epochs * samples + 1, dtype=np.uint64)
    words = mix(np.uint64(start) + counters * np.uint64(GOLDEN))
    return ((words >> np.uint64(32)) * np.uint64(OUTCOMES) >> np.uint64(32)).astype(np.uint8).reshape(epochs, samples)


def cut(images: Tensor, crops: Tensor) -> tuple[Tensor, Tensor]:
    """The images (count, channels, height, width) cut and mirrored, and which pixels (count, 1, height, width) are theirs."""
    height, width = images.shape[2:]
    places, mirrored = crops // 2, (crops % 2)[:, None] == 1
    across = torch.arange(width, device=images.device)
    rows = torch.arange(height, device=images.device) + (places // PLACES - PADDING)[:, None]
    columns = torch.where(mirrored, across.flip(0), across) + (places % PLACES - PADDING)[:, None]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    pixels = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None, :]
    wanted = pixels.flatten(1)[:, None, :].expand(-1, images.shape[1], -1)
    return images.flatten(2).gather(2, wanted).view(images.shape), inside[:, None]
