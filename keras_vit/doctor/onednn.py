"""Check for training and inference that are slow because TensorFlow does not use oneDNN."""

from __future__ import annotations

from keras_vit import accelerators
from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding
from keras_vit.layers.fused_elementwise import is_enabled


def check_onednn(context: DoctorContext) -> list[Finding]:
    """Reports whether TensorFlow uses oneDNN on this CPU."""
    if not is_enabled():
        return [Finding("oneDNN", "note", "Not checked: the model does not run on a CPU.")]
    status = accelerators.onednn()
    if status == "on":
        return [Finding("oneDNN", "fine", "TensorFlow uses oneDNN.")]
    fix = f"Import keras_vit before keras, or set {accelerators.ONEDNN}=1."
    slow = ";" in status
    return [Finding("oneDNN off", "warning" if slow else "note", f"{status}.", fix if slow else "")]
