"""Where items go: the Sink's contract, and one module per format."""
