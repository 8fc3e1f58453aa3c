"""A crawl as a job: bounded slices, each in a separate process, one after the other until the crawl is over.

Read ``protocol`` first: what task and process send each other, and which of several copies of a slice works. ``task``
is the side of the worker, ``runner`` the process of a slice.
"""
