"""A crawl as a job: bounded slices of it, each in a process of its own, one after the other until it is over."""
