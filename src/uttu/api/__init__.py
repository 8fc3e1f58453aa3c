"""The dashboard: an HTTP API and pages over the operations."""
