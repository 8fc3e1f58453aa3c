"""Real servers for tests and demos: private folder, private port, loopback only, gone when their maker is gone.

``with RedisServer() as server: server.url``. They can be killed, restarted with their data, and paused.
"""

from tests.harness.servers.errors import ServerError, ServerMissing
from tests.harness.servers.kafka import KafkaServer
from tests.harness.servers.kafka_cluster import KafkaCluster
from tests.harness.servers.rabbitmq import RabbitServer
from tests.harness.servers.rabbitmq_cluster import RabbitCluster
from tests.harness.servers.redis import RedisServer
from tests.harness.servers.redis_cluster import RedisCluster
from tests.harness.servers.redis_sentinel import RedisSentinel
from tests.harness.servers.resp import CommandRefused

__all__ = [
    "CommandRefused",
    "KafkaCluster",
    "KafkaServer",
    "RabbitCluster",
    "RabbitServer",
    "RedisCluster",
    "RedisSentinel",
    "RedisServer",
    "ServerError",
    "ServerMissing",
]
