"""Seeds, the default precision, the reference folder, and tests that need TensorFlow."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is first imported
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as importing keras_vit first does
# Two devices on every machine, for the tests of distribution; read when JAX is first imported.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import keras
import pytest

SEED = 1729

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    if os.environ.get("KERAS_VIT_TEST_QUICK"):  # a quarter of the tests' time is spent on graphs
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return
    skip = pytest.mark.skip(reason=f"needs the TensorFlow backend; this is {backend}")
    for item in items:
        if item.get_closest_marker("tensorflow"):
            item.add_marker(skip)


@pytest.fixture(autouse=True, scope="session")
def _cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Images that tests check are not cached in the folder of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture
def inspected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the images that the audit decodes, in a list that grows."""
    from keras_vit.data import Examples, image_audit

    names: list[str] = []
    inspect = image_audit.inspect_images

    def note(examples: Examples, indices: Sequence[int]) -> list:
        names.extend(examples.names[index] for index in indices)
        return inspect(examples, indices)

    monkeypatch.setattr(image_audit, "inspect_images", note)
    return names


@pytest.fixture(autouse=True)
def _same_start() -> Iterator[None]:
    """Every test starts from the same seed, layer names and precision, whatever ran before it."""
    keras.backend.clear_session(free_memory=False)  # collecting garbage 500 times takes a minute
    keras.utils.set_random_seed(SEED)
    keras.config.set_dtype_policy("float32")
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of photographs, published weights and reference outputs."""
    folder = os.environ.get("KERAS_VIT_TEST_DATA")
    if not folder:
        pytest.skip("KERAS_VIT_TEST_DATA names no folder of reference data")
    path = Path(folder).expanduser().resolve()
    if not path.is_dir():
        pytest.fail(f"KERAS_VIT_TEST_DATA must be a folder. Received: {folder}")
    return path


@pytest.fixture(scope="session")
def recipe(test_data: Path) -> ModuleType:
    """The module that makes the weights and images of a reference case from their names."""
    path = test_data / "reference" / "recipe.py"
    spec = importlib.util.spec_from_file_location("reference_recipe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
