"""Draws images of digits with 28 × 28 pixels, like those of MNIST, because compute nodes often have no internet.

Each image is a digit of a small font, enlarged, shifted by up to four pixels, with varying brightness and noise. The
same seed gives the same images on every machine.
"""

from __future__ import annotations

import torch
from torch.utils.data import TensorDataset

SIDE, CLASSES = 28, 10
SCALE, SHIFT = 3, 4  # a glyph of 5 × 7 pixels becomes 15 × 21

FONT = (
    " ### |#   #|#  ##|# # #|##  #|#   #| ### ",
    "  #  | ##  |# #  |  #  |  #  |  #  |#####",
    " ### |#   #|    #|   # |  #  | #   |#####",
    " ### |#   #|    #|  ## |    #|#   #| ### ",
    "   # |  ## | # # |#  # |#####|   # |   # ",
    "#####|#    |#### |    #|    #|#   #| ### ",
    "  ## | #   |#    |#### |#   #|#   #| ### ",
    "#####|    #|   # |  #  | #   | #   | #   ",
    " ### |#   #|#   #| ### |#   #|#   #| ### ",
    " ### |#   #|#   #| ####|    #|   # | ##  ",
)


def digits(count: int, seed: int, noise: float = 0.35) -> TensorDataset:
    """Return ``count`` images, each 1 × 28 × 28 with values from 0 to 1, and their labels from 0 to 9."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=random)
    images = _letters()[labels]
    across, down = (torch.randint(-SHIFT, SHIFT + 1, (count, 1, 1), generator=random) for _ in range(2))
    rows, columns = (torch.arange(SIDE) + down) % SIDE, (torch.arange(SIDE) + across) % SIDE
    images = images.gather(1, rows.transpose(1, 2).expand(-1, -1, SIDE)).gather(2, columns.expand(-1, SIDE, -1))
    images = images * (0.4 + 0.6 * torch.rand(count, 1, 1, generator=random))
    images = images + noise * torch.randn(count, SIDE, SIDE, generator=random)
    return TensorDataset(images.clamp(0, 1).unsqueeze(1), labels)


def _letters() -> torch.Tensor:
    """Return the ten digits without noise, each centred in its image."""
    canvas = torch.zeros(CLASSES, SIDE, SIDE)
    top, left = (SIDE - 7 * SCALE) // 2, (SIDE - 5 * SCALE) // 2
    for digit, font in enumerate(FONT):
        small = torch.tensor([[float(pixel == "#") for pixel in row] for row in font.split("|")])
        large = small.repeat_interleave(SCALE, 0).repeat_interleave(SCALE, 1)
        canvas[digit, top : top + 7 * SCALE, left : left + 5 * SCALE] = large
    return canvas
