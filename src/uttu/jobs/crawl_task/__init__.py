"""A crawl as a job: bounded slices, each in a separate process, one after the other until the crawl is over.

Read ``protocol`` first (what task and process send each other), then ``runner`` (which of several copies works).
"""
