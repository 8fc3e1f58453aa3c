"""The cost of a URL in the frontiers and in scrapy-redis as the crawl grows, and the rate that one Redis can feed."""
