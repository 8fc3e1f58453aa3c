"""Redis and Valkey servers, for every backend that uses one.

``address`` parses URLs and makes clients, ``connection`` sends commands to one server or a cluster, ``scripts`` runs
Lua libraries on it, ``errors`` maps the driver's errors and retries while the server is unavailable.
"""
