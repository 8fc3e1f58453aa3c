"""What the API and the pages can read and do: async functions of a :class:`~uttu.api.context.Context`.

Each is thin over :mod:`uttu.operations`, with typed results, a shared cache and time limits. ``by`` is the user's name.
"""
