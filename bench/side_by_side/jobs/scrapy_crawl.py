"""The job for Scrapy, with everything turned off that the job does not need: ``scrapy_crawl.py memory|jobdir|redis``.

Links and rows are taken from lxml's tree, because it is faster: Scrapy's own selectors, ``follow_all`` and
LinkExtractor do more for each link. Scrapy starts CONCURRENT_ITEMS tasks for each page, with a queue twice that long.
17 is the smallest number whose queue holds the 33 results of a small page.
"""

import os
import sys

import scrapy
from scrapy.crawler import CrawlerProcess

SETTINGS = {
    "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
    "CONCURRENT_REQUESTS": 64,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 64,
    "CONCURRENT_ITEMS": 17,
    "DOWNLOAD_DELAY": 0,
    "ROBOTSTXT_OBEY": False,
    "FEEDS": {"out.jsonl": {"format": "jsonlines"}},
    "LOG_LEVEL": "WARNING",
    "COOKIES_ENABLED": False,
    "RETRY_ENABLED": False,
    "REDIRECT_ENABLED": False,
    "METAREFRESH_ENABLED": False,
    "COMPRESSION_ENABLED": False,
    "HTTPPROXY_ENABLED": False,
    "REFERER_ENABLED": False,
    "DOWNLOADER_STATS": False,
    "STATS_CLASS": "scrapy.statscollectors.DummyStatsCollector",
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "MEMUSAGE_ENABLED": False,
    "LOGSTATS_INTERVAL": 0,
    "EXTENSIONS": {"scrapy.extensions.corestats.CoreStats": None, "scrapy.extensions.logcount.LogCount": None},
    "DOWNLOADER_MIDDLEWARES": {
        "scrapy.downloadermiddlewares.offsite.OffsiteMiddleware": None,
        "scrapy.downloadermiddlewares.httpauth.HttpAuthMiddleware": None,
        "scrapy.downloadermiddlewares.downloadtimeout.DownloadTimeoutMiddleware": None,
    },
    "SPIDER_MIDDLEWARES": {
        "scrapy.spidermiddlewares.start.StartSpiderMiddleware": None,
        "scrapy.spidermiddlewares.httperror.HttpErrorMiddleware": None,
        "scrapy.spidermiddlewares.urllength.UrlLengthMiddleware": None,
        "scrapy.spidermiddlewares.depth.DepthMiddleware": None,
        "scrapy.spidermiddlewares.metacopy.MetaCopyDetectionMiddleware": None,
    },
}

VARIANTS = {
    "memory": {},
    "jobdir": {"JOBDIR": "job"},
    "redis": {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "SCHEDULER_QUEUE_CLASS": "scrapy_redis.queue.FifoQueue",
        "SCHEDULER_PERSIST": True,
        "REDIS_URL": os.environ.get("REDIS_URL"),
    },
}

HTTP2 = {"DOWNLOAD_HANDLERS": {"https": "scrapy.core.downloader.handlers.http2.H2DownloadHandler"}}


class Bench(scrapy.Spider):
    name = "bench"

    async def start(self):
        yield scrapy.Request(os.environ["START_URL"])  # start_urls are not filtered, so a link to one visits it again

    def parse(self, response):
        tree = response.selector.root
        yield {
            "url": response.url,
            "title": tree.findtext(".//title"),
            "price": tree.findtext('.//span[@class="price"]'),
        }
        for link in tree.xpath("//a/@href"):
            yield scrapy.Request(response.urljoin(link))


process = CrawlerProcess(SETTINGS | VARIANTS[sys.argv[1]] | (HTTP2 if os.environ["HTTP2"] == "1" else {}))
process.crawl(Bench)
process.start()
