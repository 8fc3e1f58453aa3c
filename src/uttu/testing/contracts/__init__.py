"""The contracts of the roles as test suites, for built-in and third-party backends.

A backend inherits the classes of a module in its test file and supplies the fixtures that the module names.
"""
