from __future__ import annotations

import os
import signal
import threading

import pytest

from keras_vit.training.signals import SignalHandler


def test_first_signal_is_noted_and_handled_later() -> None:
    before = signal.getsignal(signal.SIGINT)
    with SignalHandler() as interruption:
        interruption.stop("nothing")  # no signal, no end
        os.kill(os.getpid(), signal.SIGINT)
        assert interruption.received is signal.SIGINT
        with pytest.raises(KeyboardInterrupt, match="saved here"):
            interruption.stop("saved here")
    assert signal.getsignal(signal.SIGINT) is before


def test_second_ctrl_c_ends_at_once() -> None:
    with SignalHandler():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_sigterm_ends_with_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    with SignalHandler() as interruption:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(SystemExit) as ended:
            interruption.stop("saved here")
    assert ended.value.code == 143
    assert "saved here" in capsys.readouterr().out


def test_outside_the_main_thread_no_handler_is_set() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work() -> None:
        with SignalHandler() as interruption:
            seen.append((interruption.received, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(None, before)]
