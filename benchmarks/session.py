"""A SavedModel in TensorFlow's C API, loaded and run as TensorFlow Serving does.

No Python of TensorFlow, Keras or keras_vit takes part: the shared libraries are called by ctypes.
As in the server's default, operators that need XLA are refused.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

# NumPy's generators before the libraries, which bring symbols of the same names.
import numpy as np
import numpy.random

_STRING = 7
_DTYPES = {1: "float32", 3: "int32", 4: "uint8", 9: "int64", 10: "bool"}
_STRING_SIZE = 24  # sizeof(TF_TString)
_NO_XLA = "_ZN10tensorflow21DisableXlaCompilationEv"  # tensorflow::DisableXlaCompilation()


class _Output(ctypes.Structure):
    _fields_ = (("operation", c_void_p), ("index", c_int))


_OUTPUTS, _TENSORS = POINTER(_Output), POINTER(c_void_p)
# Result and arguments of the functions of tensorflow/c/c_api.h and tf_tensor.h.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "TF_NewStatus": (c_void_p,),
    "TF_DeleteStatus": (None, c_void_p),
    "TF_GetCode": (c_int, c_void_p),
    "TF_Message": (c_char_p, c_void_p),
    "TF_NewGraph": (c_void_p,),
    "TF_NewSessionOptions": (c_void_p,),
    "TF_SetConfig": (None, c_void_p, c_char_p, c_size_t, c_void_p),
    "TF_LoadSessionFromSavedModel": (
        *(c_void_p, c_void_p, c_void_p, c_char_p, POINTER(c_char_p)),
        *(c_int, c_void_p, c_void_p, c_void_p),
    ),
    "TF_GraphOperationByName": (c_void_p, c_void_p, c_char_p),
    "TF_SessionRun": (
        *(None, c_void_p, c_void_p, _OUTPUTS, _TENSORS, c_int, _OUTPUTS, _TENSORS, c_int),
        *(c_void_p, c_int, c_void_p, c_void_p),
    ),
    "TF_AllocateTensor": (c_void_p, c_int, POINTER(c_int64), c_int, c_size_t),
    "TF_DeleteTensor": (None, c_void_p),
    "TF_TensorData": (c_void_p, c_void_p),
    "TF_TensorByteSize": (c_size_t, c_void_p),
    "TF_TensorType": (c_int, c_void_p),
    "TF_NumDims": (c_int, c_void_p),
    "TF_Dim": (c_int64, c_void_p, c_int),
    "TF_StringInit": (None, c_void_p),
    "TF_StringCopy": (None, c_void_p, c_char_p, c_size_t),
    "TF_StringGetDataPointer": (c_void_p, c_void_p),
    "TF_StringGetSize": (c_size_t, c_void_p),
    "TF_StringDealloc": (None, c_void_p),
}


class TensorFlowError(RuntimeError):
    """What TensorFlow says went wrong."""


class Session:
    """A loaded SavedModel.

    Args:
        path: The folder with `saved_model.pb`.
        signatures: What `signatures_of` returned for it, in another process.
        xla: Whether operators that need XLA may run.
        threads: Threads of an operator, as `--tensorflow_intra_op_parallelism` of the server; 0
            for one per core.

    Raises:
        TensorFlowError: If it does not load.
    """

    def __init__(
        self, path: str | Path, signatures: dict[str, Any], xla: bool = False, threads: int = 0
    ) -> None:
        self._signatures = signatures
        self._c = _library()
        if not xla:
            getattr(self._c, _NO_XLA)()
        self._graph = self._c.TF_NewGraph()
        tags = (c_char_p * 1)(b"serve")
        options = self._c.TF_NewSessionOptions()
        status = self._c.TF_NewStatus()
        config = bytes([2 << 3, threads])  # `intra_op_parallelism_threads` of a ConfigProto
        self._c.TF_SetConfig(options, config, len(config), status)
        self._session = self._c.TF_LoadSessionFromSavedModel(
            options, None, str(path).encode(), tags, 1, self._graph, None, status
        )
        self._check(status)

    def call(self, signature: str, **inputs: np.ndarray | Sequence[bytes]) -> dict[str, np.ndarray]:
        """Answers a request, as the server's Predict does.

        Args:
            signature: Its name.
            **inputs: Arrays, or lists of bytes.

        Returns:
            Outputs by name; strings are objects.

        Raises:
            TensorFlowError: If TensorFlow fails.
        """
        known = self._signatures[signature]
        given = [self._output(known["inputs"][name]) for name in inputs]
        tensors = [self._tensor(value) for value in inputs.values()]
        asked = [self._output(name) for name in known["outputs"].values()]
        found = (c_void_p * len(asked))()
        status = self._c.TF_NewStatus()
        self._c.TF_SessionRun(
            *(self._session, None),
            *((_Output * len(given))(*given), (c_void_p * len(given))(*tensors), len(given)),
            *((_Output * len(asked))(*asked), found, len(asked)),
            *(None, 0, None, status),
        )
        for tensor in tensors:
            self._delete(tensor)
        self._check(status)
        return {name: self._array(t) for name, t in zip(known["outputs"], found, strict=True)}

    def _check(self, status: int) -> None:
        code, message = self._c.TF_GetCode(status), self._c.TF_Message(status).decode()
        self._c.TF_DeleteStatus(status)
        if code:
            raise TensorFlowError(f"code {code}: {message}")

    def _delete(self, tensor: int) -> None:
        if self._c.TF_TensorType(tensor) == _STRING:  # long texts are outside of the tensor
            place = self._c.TF_TensorData(tensor)
            for index in range(self._c.TF_Dim(tensor, 0)):
                self._c.TF_StringDealloc(place + _STRING_SIZE * index)
        self._c.TF_DeleteTensor(tensor)

    def _output(self, name: str) -> _Output:
        operation, index = name.rsplit(":", 1)
        found = self._c.TF_GraphOperationByName(self._graph, operation.encode())
        return _Output(found, int(index))

    def _tensor(self, value: np.ndarray | Sequence[bytes]) -> int:
        if not isinstance(value, np.ndarray):
            shape = (c_int64 * 1)(len(value))
            tensor = self._c.TF_AllocateTensor(_STRING, shape, 1, _STRING_SIZE * len(value))
            place = self._c.TF_TensorData(tensor)
            for index, item in enumerate(value):
                self._c.TF_StringInit(place + _STRING_SIZE * index)
                self._c.TF_StringCopy(place + _STRING_SIZE * index, item, len(item))
            return tensor
        dtype = next(number for number, name in _DTYPES.items() if name == value.dtype.name)
        value = np.ascontiguousarray(value)
        shape = (c_int64 * value.ndim)(*value.shape)
        tensor = self._c.TF_AllocateTensor(dtype, shape, value.ndim, value.nbytes)
        ctypes.memmove(self._c.TF_TensorData(tensor), value.ctypes.data, value.nbytes)
        return tensor

    def _array(self, tensor: int) -> np.ndarray:
        """Returns the tensor's values, and frees it."""
        c = self._c
        shape = [c.TF_Dim(tensor, axis) for axis in range(c.TF_NumDims(tensor))]
        place, dtype = c.TF_TensorData(tensor), c.TF_TensorType(tensor)
        if dtype == _STRING:
            places = [place + _STRING_SIZE * i for i in range(math.prod(shape))]
            texts = [
                ctypes.string_at(c.TF_StringGetDataPointer(p), c.TF_StringGetSize(p))
                for p in places
            ]
            array = np.empty(len(texts), object)
            array[:] = texts
        else:
            content = ctypes.string_at(place, c.TF_TensorByteSize(tensor))
            array = np.frombuffer(content, _DTYPES[dtype])
        c.TF_DeleteTensor(tensor)
        return array.reshape(shape)


def signatures_of(path: str | Path) -> dict[str, Any]:
    """Returns the tensors' names by signature, for `Session`; imports TensorFlow."""
    from tensorflow.core.protobuf import saved_model_pb2

    model = saved_model_pb2.SavedModel.FromString((Path(path) / "saved_model.pb").read_bytes())
    return {
        name: {
            "inputs": {key: tensor.name for key, tensor in signature.inputs.items()},
            "outputs": {key: tensor.name for key, tensor in signature.outputs.items()},
        }
        for name, signature in model.meta_graphs[0].signature_def.items()
        if not name.startswith("__")
    }


def _library() -> ctypes.CDLL:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        raise ImportError("TensorFlow is not installed")
    folder = Path(spec.origin).parent
    ctypes.CDLL(str(folder / "libtensorflow_framework.so.2"), ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(folder / "libtensorflow_cc.so.2"), ctypes.RTLD_GLOBAL)
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
