"""Constants shared by several modules, with their sources."""

from __future__ import annotations

# Mean and standard deviation of the ImageNet training set's channels, in units of pixel / 255,
# as in DeiT, MAE, DINO and torchvision (pytorch-image-models, timm/data/constants.py).
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
# The same for CLIP's training images (https://github.com/openai/CLIP, clip/clip.py).
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)

# Minimum side of an image in pixels; smaller images are errors in the dataset.
MIN_IMAGE_SIDE = 2
# Maximum number of pixels of a decoded image: that of a 64-megapixel camera (Samsung GW1).
MAX_PIXELS = 9248 * 6944
# Images of more pixels are decoded one at a time: each takes up to 9 bytes a pixel.
LARGE_PIXELS = 16_000_000

# Maximum size in bytes of a tensorflow-datasets split that is kept in memory in encoded form.
MAX_IN_MEMORY_BYTES = 4 * 2**30

# Fraction of an image's area in a random crop, chosen for fine-tuning: the (0.08, 1.0) of
# https://arxiv.org/abs/1409.4842 is for training from scratch on a million images.
CROP_AREA = (0.5, 1.0)
# Aspect ratio (width / height) of a random crop, from the same paper.
CROP_RATIO = (3 / 4, 4 / 3)

# Maximum number of symbolic links to the same folder of a dataset: n folders with two links to the
# next one give 2**n paths.
MAX_LINKS = 8

# Minimum number of training steps for few images. Three epochs of 50 photographs were too few: 100
# steps gave a better model. Three epochs of 3000 photographs are 550 steps (docs/recipes.md).
FEW_STEPS = 100

# Bytes of a configuration, which has about 3 kB. YAML takes 15 seconds for a megabyte.
MAX_YAML = 2**18

# Names of the folders of images and of masks in a dataset for segmentation, in lowercase.
IMAGE_FOLDERS = ("images", "image", "imgs", "jpegimages")
MASK_FOLDERS = ("masks", "mask", "labels", "annotations", "segmentationclass")
