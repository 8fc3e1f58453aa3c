"""Messages between programs that don't know each other, on the broker of one's choice.

``base`` is the contract, ``topics`` the names, ``subscription`` what is the same on every broker; beside them a file or
folder per technology.
"""
