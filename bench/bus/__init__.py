"""The bus compared with the bare client libraries."""
