"""The bus on a Redis or Valkey server, or a cluster of them.

    publish ──► for each group that takes it ──► ready:GROUP ──► XREADGROUP ──► handler ──► done: out of the stream
            │                                      ▲  │ ▲                          │
            │   with a delay ─► delayed:GROUP ─────┘  │ └── taken over: silent ◄───┤ lost
            │                        ▲                │                            │
            │                        └── again ◄──────┼────────────────────────────┤ failed
            └─► PUBLISH, for subscribers              └─► dead:GROUP ◄─────────────┘ failed too often
                without a group

All keys begin with ``weft:bus:{NAME}:`` and so are in one slot of a cluster:

    groups         hash    group → its topics and its filter
    ready:GROUP    stream  what is not done: ``m`` the message, ``a`` its attempt unless it is the first. What readers
                           hold are the stream's own pending entries
    delayed:GROUP  zset    what waits for its time, or to be tried again, by the time it is due, in milliseconds
    dead:GROUP     stream  dead letters: ``m``, ``a``, and ``r`` the reason
    beats:GROUP    zset    subscriber → when it last said that it lives
    later          zset    as ``delayed``, for subscribers without a group
    listening      string  is there while there are such subscribers
    number         string  the last number given to a delayed message
    token          string  of this life of the bus; another one if the server has lost its data

Channels are ``weft:bus:{NAME}:TOPIC``.

Messages are copied to each group when they are published, as RabbitMQ does it, rather than read by all groups from one
stream: so a stream holds exactly what is not done, its length is the lag, and nobody has to decide how long to keep
what some group may still want. Whatever changes more than one of these keys is an operation (``lua/``), done as a
whole.
"""

from weft.bus.redis.bus import RedisBus

__all__ = ["RedisBus"]
