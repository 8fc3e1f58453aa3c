"""One server or a cluster of them: what is said to the node that has a key, and what the nodes say of themselves."""

from __future__ import annotations

from typing import Any

import redis.asyncio.cluster as aiocluster

from weft.drivers.redis.address import Client
from weft.drivers.redis.refusals import problems


async def at(client: Client, key: str, *words: Any) -> Any:
    """The answer to a command at the node of a key."""
    if isinstance(client, aiocluster.RedisCluster):
        await client.initialize()
        return await client.execute_command(*words, target_nodes=client.get_node_from_key(key))
    return await client.execute_command(*words)  # type: ignore[no-untyped-call]


async def examined(client: Client) -> tuple[str, bool]:
    """What makes a server, or a node of a cluster, unfit, if anything does; and whether all write to disk."""
    nodes = await about(client)
    cluster = isinstance(client, aiocluster.RedisCluster)
    found = [problem for each in nodes for problem in problems(each, cluster=cluster)]
    return next(iter(found), ""), all(int(each.get("aof_enabled", 0)) for each in nodes)


async def about(client: Client) -> list[dict[str, Any]]:
    """What the server says of itself, or each node of a cluster."""
    if isinstance(client, aiocluster.RedisCluster):
        await client.initialize()
        return [await client.info(target_nodes=node) for node in client.get_primaries()]
    return [await client.info()]
