"""The bus beside the bare client libraries."""
