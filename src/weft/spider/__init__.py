"""What users write against: the Spider, the Page a handler gets, and selections in it."""

from weft.spider.page import Page
from weft.spider.selection import Selection
from weft.spider.spider import Failure, Spider

__all__ = ["Failure", "Page", "Selection", "Spider"]
