"""The shared store: crawls on a Redis or Valkey server, for workers on any number of machines."""
