"""The dashboard: an HTTP API and pages, thin over :mod:`uttu.operations`.

``routes`` lists what the API can do, ``data`` does it, ``access`` says who may, and ``app`` puts it together.
"""
