"""Shipped for whoever builds on Weft: the contracts as test classes, a clock to turn, a site to crawl.
Modules here may need pytest; nothing outside imports them."""
