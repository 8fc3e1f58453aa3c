"""A crawl whose slot is on its way from one node of a cluster to another, half here and half there."""

from __future__ import annotations

import asyncio

import pytest
from tests.frontier.redis_crawls import COUNT, check_whole, crawl_on, depot_at, done, new_name
from tests.harness.servers import RedisCluster, RedisServer

from uttu.testing.contracts.store import EASY, pages


class Move:
    """The slot of a crawl, and where it goes."""

    def __init__(self, cluster: RedisCluster, name: str) -> None:
        self.slot = int(str(cluster.nodes[0].ask("CLUSTER", "KEYSLOT", f"uttu:{{{name}}}")))
        self.source = next(node for node in cluster.nodes if node.ask("CLUSTER", "COUNTKEYSINSLOT", self.slot))
        self.target = next(node for node in cluster.nodes if node is not self.source)

    def begin(self) -> None:
        self.target.ask("CLUSTER", "SETSLOT", self.slot, "IMPORTING", _name(self.source))
        self.source.ask("CLUSTER", "SETSLOT", self.slot, "MIGRATING", _name(self.target))

    def carry(self, ending: str = "") -> None:
        keys = self.source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, 1000)
        assert isinstance(keys, list)
        for key in map(str, keys):
            if key.endswith(ending):
                self.source.ask("MIGRATE", "127.0.0.1", self.target.port, key, 0, 5000)

    def end(self) -> None:
        self.carry()
        for node in (self.target, self.source):
            node.ask("CLUSTER", "SETSLOT", self.slot, "NODE", _name(self.target))


def _name(node: RedisServer) -> str:
    return str(node.ask("CLUSTER", "MYID"))


@pytest.mark.parametrize("gone", [":lanes", ":tally"])
async def test_operations_wait_until_all_of_it_has_arrived(gone: str) -> None:
    with RedisCluster() as cluster:
        async with depot_at(cluster.url) as catalog:
            name = new_name()
            store = await catalog.create(name, EASY)
            await store.frontier.put(pages(COUNT))
            leases = await store.frontier.lease(2, "w")
            move = Move(cluster, name)
            move.begin()
            move.carry(gone)
            settling = asyncio.create_task(store.frontier.settle([done(lease) for lease in leases]))
            finished, _ = await asyncio.wait([settling], timeout=1)
            assert not finished, "half of a crawl can't be worked on"
            move.end()
            async with asyncio.timeout(60):
                assert await settling == set()
                await crawl_on(store)
            await check_whole(store)
