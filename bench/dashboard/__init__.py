"""The dashboard over a large crawl that runs: how long pages take, and what the crawl loses."""
