"""Numbers that have one home, each with its source."""

from __future__ import annotations

# Mean and standard deviation of the ImageNet training set's channels, in units of pixel / 255,
# as DeiT, MAE, DINO and torchvision use them (pytorch-image-models, timm/data/constants.py).
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

# An image with a shorter side than this, in pixels, shows nothing and is a mistake.
MIN_IMAGE_SIDE = 2
# The largest image that is decoded, in pixels: what a camera of 64 megapixels makes (Samsung GW1).
MAX_PIXELS = 9248 * 6944
# Images of more pixels are decoded one at a time: each takes up to 9 bytes a pixel.
LARGE_PIXELS = 16_000_000

# A tensorflow-datasets split is held in memory in encoded form up to this many bytes.
MAX_IN_MEMORY_BYTES = 4 * 2**30

# Share of an image's area that a random crop keeps. Ours, for fine-tuning: the (0.08, 1.0) of
# https://arxiv.org/abs/1409.4842 is for training from scratch on a million images.
CROP_AREA = (0.5, 1.0)
# Width / height of such a crop, of the same paper.
CROP_RATIO = (3 / 4, 4 / 3)
