"""The app: Celery, configured.

What is stronger comes later: Celery's defaults < ours (``defaults``), made of ``weft.toml`` and the environment < a
module given to ``config_from_object`` < what is set in code (``app.conf.…``) < Celery's own environment variables.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import celery
from celery.app import backends
from celery.local import Proxy
from celery.schedules import BaseSchedule
from celery.utils.log import get_logger

from weft.errors import ConfigError
from weft.jobs import settings as job_settings
from weft.jobs.defaults import configuration, longest_delay
from weft.jobs.settings import JobSettings, without_management
from weft.jobs.started import Starts, late

if TYPE_CHECKING:
    from weft.jobs.schedules.entry import Entry
    from weft.jobs.schedules.when import When

_log = get_logger(__name__)


class App(celery.Celery):
    """A Celery app made of :class:`JobSettings`. Paths are from ``folder`` on.

    Without a broker in the settings it uses the private server of the folder, and starts it when a connection is
    first needed, not before.
    """

    task_cls = "weft.jobs.task:Task"
    amqp_cls = "weft.jobs.transport:AMQP"
    loader_cls = "weft.jobs.loading:Loader"

    def __init__(self, settings: JobSettings | None = None, folder: Path | str = ".", **options: Any) -> None:
        self.weft = JobSettings() if settings is None else settings
        self.folder = Path(folder)
        self.starts = Starts(self)
        self._recurring: list[tuple[Any, dict[str, Any]]] = []
        super().__init__(options.pop("main", self.weft.name), **options)
        self._pending_defaults.append(self._sound)

    @classmethod
    def load(cls, folder: Path | str = ".", **options: Any) -> Self:
        """The app of a folder, by its ``weft.toml`` and the environment.

        :raises ConfigError: see :func:`weft.jobs.settings.load`.
        """
        return cls(job_settings.load(Path(folder)), folder, **options)

    def _sound(self) -> dict[str, Any]:
        """Put our settings above Celery's defaults, but below all that the user gives.

        Celery asks for this while it reads the configuration; what is returned would go above the user's module.
        """
        broker = self._conf.broker_url or without_management(self.weft.broker) or self.embedded.url
        ours = configuration(self.weft, broker)
        self._conf.defaults.insert(-1, ours)
        self._conf.maps.insert(-1, ours)
        return {}

    @property
    def embedded(self) -> Any:
        """The private server of the folder."""
        if "_embedded" not in self.__dict__:
            from weft.jobs.embedded import Embedded

            self._embedded = Embedded(self.folder)
        return self._embedded

    def _hold(self) -> None:
        if not self.weft.broker and self.conf.broker_url == self.embedded.url:
            self.embedded.hold()

    def _connection(self, url: str, *args: Any, **options: Any) -> Any:
        self._hold()
        return super()._connection(url, *args, **options)

    def _get_backend(self) -> Any:
        self._hold()
        backend, url = backends.by_url(self.backend_cls or self.conf.result_backend, self.loader)
        return late(backend)(app=self, url=url)

    @property
    def producer_pool(self) -> Any:
        """What tasks are sent with.

        RabbitMQ confirms them where the settings ask for it, on quorum queues, and where a task that is acknowledged
        late sends them: its own message is given up afterwards.
        """
        sender = self.current_worker_task
        confirmed = self.weft.confirm or self.weft.queue_type == "quorum" or (sender and sender.acks_late)
        return self.amqp.confirming_pool if confirmed else self.amqp.producer_pool

    def every(
        self, when: float | str | timedelta | BaseSchedule | When, name: str = "", **more: Any
    ) -> Callable[[Any], Any]:
        """Have a task run again and again: ``@app.every(30)``, ``@app.every("0 7 * * *")``, ``@app.every(Solar(…))``.

        It goes above ``@app.task``, or above a plain function, and may be given several times. ``name`` is the
        schedule's, the task's own without it; ``more`` is what a table ``[jobs.schedule.NAME]`` may have: ``args``,
        ``kwargs``, ``timezone``, ``overlap``, ``grace``, ``queue`` …

        :raises ConfigError: that is no time.
        """
        from weft.jobs.schedules.reading import when_of

        when_of(when, more.get("timezone", self.weft.timezone))
        table = {"crontab" if isinstance(when, str) else "schedule": when, "name": name, **more}

        def registered(function: Any) -> Any:
            # Looking at a task makes it, and with it the configuration; it is too early for that.
            made = issubclass(type(function), Proxy) or isinstance(function, celery.Task)
            task = function if made else self.task(function)
            self._recurring.append((task, table))
            return task

        return registered

    def finalize(self, auto: bool = False) -> None:
        """As Celery's; schedules of :meth:`every` are then in ``conf.beat_schedule``.

        :raises ConfigError: one of them is wrong.
        """
        with self._finalize_mutex:
            first = not self.finalized
            super().finalize(auto)
            if first:
                self.conf.beat_schedule.update({entry.name: entry for entry in self.entries})

    @property
    def entries(self) -> list[Entry]:
        """The schedules that were made with :meth:`every`, in their order.

        :raises ConfigError: one of them is wrong, or two have one name.
        """
        from weft.jobs.schedules.reading import parse

        found: dict[str, Entry] = {}
        for task, table in self._recurring:
            name = table["name"] or task.name
            if name in found:
                raise ConfigError(f"schedule {name!r} is there twice: give one of them another name, name=…")
            rest = {key: value for key, value in table.items() if key != "name"}
            found[name] = parse(name, {"task": task.name, **rest}, "code", self.weft.timezone)
        return list(found.values())

    def send_task(self, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Send a task by its name, as Celery does.

        :raises ConfigError: its time is further ahead than the broker can keep it.
        """
        if options.get("countdown") or options.get("eta"):
            self._bound(name, options)
        return super().send_task(name, args, kwargs, **options)

    def _bound(self, name: str, options: dict[str, Any]) -> None:
        longest = longest_delay(self.weft, self.conf.broker_url)
        delay = self._delay(options.get("countdown"), options.get("eta"))
        if longest is None or delay <= longest:
            return
        if options.get("retries"):
            # An error here would end a task that only wants to try again.
            _log.warning(
                "%s is tried again in %g seconds, not in %g: the broker keeps it no longer", name, longest, delay
            )
            options.update(countdown=longest, eta=None)
            return
        raise ConfigError(
            f"task {name} is to run in {delay:,.0f} seconds, but the broker would run it several times beyond "
            f"{longest:,.0f}: make a schedule for it with weft schedule add, or raise jobs.visibility_seconds"
        )

    def _delay(self, countdown: float | None, eta: datetime | str | None) -> float:
        if countdown:
            return float(countdown)
        if isinstance(eta, str):
            eta = datetime.fromisoformat(eta)
        if eta is None:
            return 0.0
        aware = eta if eta.tzinfo else eta.replace(tzinfo=self.timezone)
        return (aware - datetime.now(UTC)).total_seconds()
