"""The API that users write spiders with: the Spider, the Page that a handler gets, and selections of its elements.

The rest of the package parses: HTML and XML, CSS and XPath, encodings, links and sitemaps. It does no network I/O.
"""

from uttu.spider.page import Page
from uttu.spider.selection import Selection
from uttu.spider.spider import Failure, Spider

__all__ = ["Failure", "Page", "Selection", "Spider"]
