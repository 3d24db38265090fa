from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from keras_vit.tf_serving import batching


def threads(path: Path) -> int:
    (found,) = re.findall(r"num_batch_threads { value: (\d+) }", path.read_text())
    return int(found)


def test_there_is_a_thread_for_each_core(tmp_path: Path) -> None:
    assert threads(batching.write_config(tmp_path / "eight", 1000, cores=8)) == 8
    assert threads(batching.write_config(tmp_path / "this", 1000)) == os.cpu_count()


def test_two_full_requests_can_wait_for_a_signature(tmp_path: Path) -> None:
    """More would not fit the memory of a server (tests/export/test_deployment_files.py)."""
    text = batching.write_config(tmp_path, 1000, cores=3).read_text()
    assert "max_enqueued_batches { value: 2 }" in text
    assert "# 32 images can wait;" in text


def test_file_of_the_user_is_kept(tmp_path: Path) -> None:
    (tmp_path / batching.FILE).write_text("max_batch_size { value: 1 }")
    assert batching.write_config(tmp_path, 1000).read_text() == "max_batch_size { value: 1 }"


def test_number_of_cores_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`cores` must be .*Received: cores=0"):
        batching.write_config(tmp_path, 1000, cores=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("parameters", "timeout"), [(22_000_000, 100), (86_000_000, 2000)])
def test_requests_wait_longer_for_a_batch_of_a_large_model(
    parameters: int, timeout: int, tmp_path: Path
) -> None:
    text = batching.write_config(tmp_path, parameters).read_text()
    assert f"batch_timeout_micros {{ value: {timeout} }}" in text
    assert f"{parameters:,} parameters" in text
