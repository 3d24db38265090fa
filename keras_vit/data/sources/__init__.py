"""Sources of images: folders, CSV tables and TensorFlow Datasets."""
