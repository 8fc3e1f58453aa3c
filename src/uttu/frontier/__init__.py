"""The frontier role: contracts for durable pending requests, their catalog and their transfer.

One folder per technology implements them: ``sqlite`` for one machine, ``redis`` for a fleet.
"""
