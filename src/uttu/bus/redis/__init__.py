"""The bus on a Redis or Valkey server, or a cluster of them.

    publish ──► each group subscribed to it ──► ready:GROUP ──► XREADGROUP ──► handler ──► done: XACK and XDEL
            │                                      ▲  │ ▲                         │
            │   with a delay ─► delayed:GROUP ─────┘  │ └── taken over ◄──────────┤ subscriber died
            │                        ▲                │                           │
            │                        └── again ◄──────┼───────────────────────────┤ handler failed
            └─► PUBLISH, for subscribers              └─► dead:GROUP ◄────────────┘ failed ``attempts`` times
                without a group

All keys start with ``uttu:bus:{NAME}:``, and the braces put them into one slot of a cluster:

    groups         hash    group → its definition: topics and header filter
    ready:GROUP    stream  messages that are not acknowledged: ``m`` the message, ``a`` its attempt (missing if 1). The
                           stream's pending entries list has those that subscribers hold
    delayed:GROUP  zset    messages with a delay, and failed ones before their retry; score: due time in milliseconds
    dead:GROUP     stream  dead letters: ``m``, ``a``, and ``r`` the reason
    beats:GROUP    zset    subscriber → time of its last heartbeat, in milliseconds
    later          zset    like ``delayed``, for subscribers without a group
    listening      string  exists while there are subscribers without a group; expires unless they renew it
    number         string  counter; gives delayed messages a unique prefix
    token          string  random id of the bus's data; it changes if the server has lost its data

Pub/sub channels are ``uttu:bus:{NAME}:TOPIC``.

``publish`` copies a message to the stream of each group, as RabbitMQ does. With one stream for all groups, somebody
would have to decide how long to keep messages for slow groups. Here a stream contains exactly the messages that are not
acknowledged, and its length is the lag. Every change of more than one key is an atomic operation in ``lua/``.
"""

from uttu.bus.redis.bus import RedisBus

__all__ = ["RedisBus"]
