"""Names that people type for settings: those of tables in ``uttu.toml``, and those of other crawlers."""

from __future__ import annotations

from typing import Final

# Names in the table [jobs]. Repeated here because its module needs packages that may not be installed.
JOB_SETTINGS: Final = (
    "broker",
    "backend",
    "name",
    "include",
    "queue",
    "queue_type",
    "routes",
    "confirm",
    "timezone",
    "result_seconds",
    "visibility_seconds",
    "slice_seconds",
    "schedules",
    "schedule",
    "outputs",
    "servers",
    "flower",
    "celery",
)
# Names in the table [dashboard], for the same reason.
DASHBOARD_SETTINGS: Final = (
    "host",
    "port",
    "tls_cert",
    "tls_key",
    "root_path",
    "hosts",
    "proxies",
    "stores",
    "buses",
    "users",
    "session_hours",
)
TABLE_NAMES: Final = (*(f"jobs_{name}" for name in JOB_SETTINGS), *(f"dashboard_{name}" for name in DASHBOARD_SETTINGS))
# Settings of other crawlers, and their names in Uttu.
OTHER_CRAWLERS: Final = {
    "DOWNLOAD_DELAY": "it is delay",
    "RANDOMIZE_DOWNLOAD_DELAY": "delays are not random: see delay and throttle",
    "CONCURRENT_REQUESTS": "it is concurrency",
    "CONCURRENT_REQUESTS_PER_DOMAIN": "it is per_host",
    "CONCURRENT_REQUESTS_PER_IP": "it is per_host",
    "ROBOTSTXT_OBEY": "it is robots",
    "USERAGENT": "it is user_agent",
    "DEPTH_LIMIT": "it is max_depth",
    "DOWNLOAD_TIMEOUT": "it is timeout",
    "DOWNLOAD_MAXSIZE": "it is max_body",
    "RETRY_TIMES": "it is retries",
    "RETRY_ENABLED": "it is retries; 0 turns them off",
    "REDIRECT_MAX_TIMES": "it is max_redirects",
    "REDIRECT_ENABLED": "it is max_redirects; 0 turns them off",
    "COOKIES_ENABLED": "it is cookies",
    "HTTPCACHE_ENABLED": "it is cache",
    "AUTOTHROTTLE_ENABLED": "it is throttle",
    "DEFAULT_REQUEST_HEADERS": "it is headers",
    "HTTP_PROXY": "it is proxy",
    "URLLENGTH_LIMIT": "it is max_url_length",
    "CLOSESPIDER_PAGECOUNT": "it is max_pages",
    "CLOSESPIDER_ITEMCOUNT": "it is max_items",
    "CLOSESPIDER_TIMEOUT": "it is max_seconds",
    "START_URLS": "it is the argument start of Spider(…)",
    "START_URL": "it is the argument start of Spider(…)",
    "URLS": "it is the argument start of Spider(…)",
    "SITEMAP_URLS": "it is the argument sitemap of Spider(…)",
    "ALLOWED_DOMAINS": "it is domains",
    "CUSTOM_SETTINGS": "settings are keywords of Spider(…), or stand in uttu.toml",
    "FEEDS": "outputs are given on the command line: -o FILE",
    "FEED_URI": "outputs are given on the command line: -o FILE",
    "OUTPUT": "outputs are given on the command line: -o FILE",
    "ITEM_PIPELINES": "a handler changes items before it yields them",
    "DOWNLOADER_MIDDLEWARES": "it is spider.use(…)",
    "DUPEFILTER_CLASS": "a request is set apart with salt=",
    "LOG_LEVEL": "use --log-level or UTTU_LOG_LEVEL",
    "JOBDIR": "crawls are always kept, in .uttu or where the setting frontier says",
    "SCHEDULER": "it is frontier",
    "REDIS_URL": "it is frontier",
}
