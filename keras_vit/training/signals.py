"""Handling of Ctrl-C (SIGINT) and SIGTERM, so that the training state is saved before exit."""

from __future__ import annotations

import contextlib
import signal
import threading
from types import FrameType

# 128 + 15: exit status of a process ended by SIGTERM.
SIGTERM_STATUS = 143


class SignalHandler(contextlib.ExitStack):
    """Context manager that delays SIGINT and SIGTERM until the current step is saved.

    A second Ctrl-C ends the program immediately. The class has no effect outside the main thread,
    where Python does not allow signal handlers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.received: signal.Signals | None = None

    def __enter__(self) -> SignalHandler:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.callback(signal.signal, number, signal.signal(number, self._record))
        return self

    def stop(self, message: str) -> None:
        """Ends the run with `KeyboardInterrupt` or `SystemExit` if a signal was received."""
        if self.received is signal.SIGINT:
            raise KeyboardInterrupt(message)
        if self.received is signal.SIGTERM:
            print(message)
            raise SystemExit(SIGTERM_STATUS)

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self.received is signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        print("\nFinishing this step and saving ... (press Ctrl-C again to stop immediately)")
