"""The way to a Redis or Valkey server, for all that use one: its address, the operations it is taught, and patience."""
