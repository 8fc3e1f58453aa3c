"""``python -m uttu`` is the ``uttu`` command."""

from uttu.cli import main

main()
