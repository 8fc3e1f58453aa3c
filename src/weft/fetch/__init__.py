"""How responses are had: the Fetcher's contract, and one module per way of fetching."""
