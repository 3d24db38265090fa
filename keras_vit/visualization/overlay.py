"""Overlay of color-coded relevance maps on images.

Letters: B batch; H, W, C image height, width, channels; h, w rows and columns of patches.
"""

from __future__ import annotations

import numpy as np
import PIL.Image

# From blue (lowest) to red (highest): matplotlib's "turbo" at nine points, so that exported
# artifacts without matplotlib can draw the same colors.
_COLORS = np.array(
    [
        *((48, 18, 59), (65, 111, 227), (42, 184, 230), (32, 234, 172), (126, 252, 87)),
        *((205, 230, 54), (251, 169, 50), (226, 81, 13), (122, 4, 3)),
    ],
    np.float64,
)

_SATURATED = 0.03  # fraction of the patches


def overlay(pixels: np.ndarray, maps: np.ndarray, strength: float = 0.55) -> np.ndarray:
    """Colors images according to relevance maps, from blue (lowest) to red (highest).

    Each map is scaled from its minimum to the value that 3% of its patches exceed, because in many
    models a few patches have high attention without a reason in the image. Colors show the
    location of relevance, not its amount.

    Args:
        pixels: Images (B, H, W, C), [0, 255], of one or three channels.
        maps: Relevance of each patch, (B, h, w).
        strength: Weight of the color in the mixture, in [0, 1].

    Returns:
        Images (B, H, W, 3), uint8.

    Raises:
        ValueError: If the numbers of images and maps differ.

    Examples:
        >>> overlay(np.zeros((1, 8, 12, 3)), np.ones((1, 2, 3))).shape
        (1, 8, 12, 3)
    """
    if len(pixels) != len(maps):
        raise ValueError(
            "`maps` must have one map for each image. "
            f"Received: {len(maps)} maps for {len(pixels)} images"
        )
    pictures = []
    for image, values in zip(np.asarray(pixels, np.float64), maps, strict=True):
        gray = image.mean(axis=-1, keepdims=True)
        highest = np.quantile(values, 1 - _SATURATED, method="higher")
        level = smooth(np.minimum(values, highest), image.shape[:2]) * (len(_COLORS) - 1)
        colors = np.stack(
            [np.interp(level, np.arange(len(_COLORS)), channel) for channel in _COLORS.T], axis=-1
        )
        pictures.append((1 - strength) * gray + strength * colors)
    return np.clip(np.round(np.stack(pictures)), 0, 255).astype(np.uint8)


def smooth(values: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Enlarges a relevance map to the size of an image and scales it to [0, 1]."""
    small = PIL.Image.fromarray(np.asarray(values, np.float32))
    large = np.asarray(small.resize(size[::-1], PIL.Image.Resampling.BILINEAR), np.float64)
    span = float(np.ptp(values))
    if not span:
        return np.zeros(size)
    return (large - large.min()) / max(float(np.ptp(large)), 1e-6 * span)
