"""Where a program can be reached."""

from __future__ import annotations

import socket

from foveate.server.common import listen


def test_who_comes_early_waits_and_a_taken_port_is_left_to_its_owner() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        with listen("127.0.0.1", port, 20) as second:
            assert port < second.getsockname()[1] < port + 20
