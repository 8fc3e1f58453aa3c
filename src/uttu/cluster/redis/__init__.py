"""The coordinator on a Redis or Valkey server: alone, with sentinels, or a cluster."""
