"""What a URL costs the frontiers as the crawl grows, beside scrapy-redis; what one Redis can feed."""
