"""A finished model as a file that others can run, and running such files."""

from keras_vit.export import saved_model, tflite
from keras_vit.export.comparison import Comparison
from keras_vit.export.keras_predictor import KerasPredictor
from keras_vit.export.load import load_predictor
from keras_vit.export.predictor import Predictor
from keras_vit.export.publishing import publish
from keras_vit.export.saved_model_predictor import SavedModelPredictor
from keras_vit.export.tflite_predictor import TFLitePredictor
from keras_vit.export.verification import VerificationError, table, verify

__all__ = [
    "Comparison",
    "KerasPredictor",
    "Predictor",
    "SavedModelPredictor",
    "TFLitePredictor",
    "VerificationError",
    "load_predictor",
    "publish",
    "saved_model",
    "table",
    "tflite",
    "verify",
]
