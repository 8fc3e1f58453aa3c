"""Schedules in a store that several beats share: one beat leads and sends tasks, and each scheduled run starts once.

``triggers`` and ``schedule`` are pure; ``base`` explains the protocol; ``beat`` is the sending side, ``run_once`` the
worker's side.
"""

from uttu.jobs.schedules.catalog import open_app_store, open_schedule_store
from uttu.jobs.schedules.run_once import RunOnce, run_once_of
from uttu.jobs.schedules.schedule import Schedule, parse_schedule, parse_trigger
from uttu.jobs.schedules.triggers import Cron, Every, Solar

__all__ = [
    "Cron",
    "Every",
    "RunOnce",
    "Schedule",
    "Solar",
    "open_app_store",
    "open_schedule_store",
    "parse_schedule",
    "parse_trigger",
    "run_once_of",
]
