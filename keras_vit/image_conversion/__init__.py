"""Conversion of image folders to formats that TensorFlow can decode (without TensorFlow)."""

from keras_vit.image_conversion.convert import Conversion, convert_images

__all__ = ["Conversion", "convert_images"]
