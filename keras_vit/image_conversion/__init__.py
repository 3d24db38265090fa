"""Copying of a folder so that every image in it can be decoded (without TensorFlow)."""

from keras_vit.image_conversion.convert import Conversion, convert_images

__all__ = ["Conversion", "convert_images"]
