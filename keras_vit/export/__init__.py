"""A finished model as files that others can run, running such files, and asking a server."""

from keras_vit.data.image_reading import Limits
from keras_vit.export import saved_model, tflite
from keras_vit.export.bundle import Bundle, bundle
from keras_vit.export.client import Client
from keras_vit.export.keras_predictor import KerasPredictor
from keras_vit.export.load import load_predictor
from keras_vit.export.prediction import Prediction, predictions
from keras_vit.export.predictor import Predictor
from keras_vit.export.rollout import Rollout
from keras_vit.export.saved_model_predictor import SavedModelPredictor
from keras_vit.export.tflite_predictor import TFLitePredictor
from keras_vit.export.transports import ServingError
from keras_vit.export.verification import VerificationError, Verified

__all__ = [
    "Bundle",
    "Client",
    "KerasPredictor",
    "Limits",
    "Prediction",
    "Predictor",
    "Rollout",
    "SavedModelPredictor",
    "ServingError",
    "TFLitePredictor",
    "VerificationError",
    "Verified",
    "bundle",
    "load_predictor",
    "predictions",
    "saved_model",
    "tflite",
]
