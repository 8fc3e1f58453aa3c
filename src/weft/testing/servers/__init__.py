"""Real servers for tests and demos: private folder, private port, loopback only, gone when their maker is gone.

``with RedisServer() as server: server.url``. They can be killed, restarted with their data, and paused.
"""

from weft.testing.servers.cluster import RedisCluster
from weft.testing.servers.errors import ServerError, ServerMissing
from weft.testing.servers.kafka import KafkaServer
from weft.testing.servers.kafka_cluster import KafkaCluster
from weft.testing.servers.rabbitmq import RabbitServer
from weft.testing.servers.rabbitmq_cluster import RabbitCluster
from weft.testing.servers.redis import RedisServer
from weft.testing.servers.resp import Refused
from weft.testing.servers.sentinel import RedisSentinel

__all__ = [
    "KafkaCluster",
    "KafkaServer",
    "RabbitCluster",
    "RabbitServer",
    "RedisCluster",
    "RedisSentinel",
    "RedisServer",
    "Refused",
    "ServerError",
    "ServerMissing",
]
