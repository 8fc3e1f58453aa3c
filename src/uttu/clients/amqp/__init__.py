"""RabbitMQ servers and clusters over AMQP 0-9-1, for every backend that uses one.

``address`` parses URLs, ``connection`` keeps one connection open, reconnects, and maps the driver's errors.
"""
