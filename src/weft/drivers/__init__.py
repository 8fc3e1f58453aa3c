"""What technologies that speak to the same kind of server share: addresses, connections, what refusals mean.

A room per kind of server. Nothing here knows what the server is used for.
"""
