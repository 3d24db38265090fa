"""Errors of storage services, and the name of the index of packed shards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from keras_vit.arguments import install_hint, without_password

#: File that lists what packed shards contain.
INDEX = "packed_index.parquet"


@contextlib.contextmanager
def reading(source: str) -> Iterator[None]:
    """Converts errors of a storage service to a `ValueError` that names what is missing."""
    try:
        yield
    except ImportError as error:
        hint = install_hint("cloud")
        raise ImportError(f"Files at {source} need further packages; {hint}") from error
    except Exception as error:  # each client library has its own error classes
        name = type(error).__name__
        if isinstance(error, FileNotFoundError):
            reason = "there is no such bucket or folder"
        elif isinstance(error, PermissionError):
            reason = "these credentials have no permission to read it"
        elif "Credential" in name:
            reason = (
                "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                "GOOGLE_APPLICATION_CREDENTIALS, or log in with the provider's command"
            )
        else:
            reason = f"{name}: {error}"
        raise ValueError(
            f"`data` must be a folder or a table that can be read. Received: "
            f"{without_password(source)} ({reason})"
        ) from error
