"""Numbers that have one home, each with its source."""

from __future__ import annotations

# Mean and standard deviation of the ImageNet training set's channels, in units of pixel / 255,
# as DeiT, MAE, DINO and torchvision use them (pytorch-image-models, timm/data/constants.py).
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

# An image with a shorter side than this, in pixels, shows nothing and is a mistake.
MIN_IMAGE_SIDE = 2
# The longest side, in pixels, that is decoded: 16384 x 16384 RGB pixels are 0.75 GiB. It is also
# the largest side of a WebP image (16383) rounded up (RFC 9649, section 2.6).
MAX_IMAGE_SIDE = 16384

# A tensorflow-datasets split is held in memory in encoded form up to this many bytes.
MAX_IN_MEMORY_BYTES = 4 * 2**30

# Share of an image's area that a random crop keeps. Ours, for fine-tuning: the (0.08, 1.0) of
# https://arxiv.org/abs/1409.4842 is for training from scratch on a million images.
CROP_AREA = (0.5, 1.0)
