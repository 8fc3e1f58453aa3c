"""The sink role: the contract of an output, and one module per format.

A sink receives the items of a crawl in order, in batches, and can resume exactly after a crash.
"""
