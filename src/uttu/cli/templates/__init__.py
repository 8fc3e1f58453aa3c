"""Files that commands copy: ``spider.py.txt`` for ``uttu new``, ``demo_spider.py`` for ``uttu demo``.

They are data, not part of the command line. ``demo_spider.py`` is also checked as Python code.
"""
