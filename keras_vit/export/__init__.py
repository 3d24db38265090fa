"""Model export to SavedModel, TFLite, ONNX and OpenVINO, and inference with exported files."""

from keras_vit.data.image_reading import Limits
from keras_vit.export import saved_model, tflite
from keras_vit.export.add_class import add_class
from keras_vit.export.bundle import Bundle, bundle
from keras_vit.export.compare_artifacts import ArtifactComparison, VerificationError
from keras_vit.export.load import embed, load_predictor
from keras_vit.export.predictor import Predictor
from keras_vit.export.saved_model import chosen_precision
from keras_vit.tasks.classification.prediction import Prediction
from keras_vit.tf_serving.client import Client
from keras_vit.tf_serving.rollout import Rollout
from keras_vit.tf_serving.transports import ServingError

__all__ = [
    "ArtifactComparison",
    "Bundle",
    "Client",
    "Limits",
    "Prediction",
    "Predictor",
    "Rollout",
    "ServingError",
    "VerificationError",
    "add_class",
    "bundle",
    "chosen_precision",
    "embed",
    "load_predictor",
    "saved_model",
    "tflite",
]
