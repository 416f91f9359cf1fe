"""Signals: the first is kept, the second raises, and the handlers come back."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from foveate.train.trainer import Interrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_kept_and_the_second_raises(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupt() as interrupt:
        assert (interrupt.received, interrupt.exit_code) == (None, 0)
        os.kill(os.getpid(), number)
        assert (interrupt.received, interrupt.exit_code) == (number, 128 + number)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before


def test_at_once_the_first_raises() -> None:
    with Interrupt() as interrupt:
        with pytest.raises(KeyboardInterrupt), interrupt.at_once():
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.received == signal.SIGINT


def test_other_threads_catch_none() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def work() -> None:
        with Interrupt() as interrupt:
            seen.extend([interrupt.received, signal.getsignal(signal.SIGINT)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None, before]
