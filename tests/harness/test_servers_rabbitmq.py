"""A RabbitMQ server of one's own: at loopback only, and gone with all that belongs to it when its maker is."""

from __future__ import annotations

import subprocess
import sys

import psutil

MAKER = """
import sys
from tests.harness.servers import RabbitServer
with RabbitServer() as server:
    server.add_vhost("a/b")
    print(server.process.pid, flush=True)
    sys.stdin.read()
"""


def test_a_server_is_private_and_does_not_outlive_its_maker() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as maker:
        assert maker.stdout
        pid = int(maker.stdout.readline())
        started = psutil.Process(maker.pid).children(recursive=True)
        assert pid in [process.pid for process in started]
        listening = [
            connection.laddr.ip
            for process in started
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert len(listening) >= 4  # of the node: clients, nodes, management; and epmd's
        assert set(listening) <= {"127.0.0.1", "::1"}
        maker.kill()
    gone, alive = psutil.wait_procs(started, 60)
    assert not alive
    assert len(gone) == len(started)
