"""Data sources: image folders, CSV tables and TensorFlow Datasets."""
