"""Where requests wait: the Frontier's contract, and one module per technology that keeps it."""
