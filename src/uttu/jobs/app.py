"""The app: Celery with Uttu's configuration.

Later sources override earlier ones: Celery's defaults < ours (:mod:`uttu.jobs.configuration`), built from ``uttu.toml``
and the environment < a module given to ``config_from_object`` < values set in code (``app.conf.…``) < Celery's own
environment variables.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import celery
from celery.app import backends
from celery.exceptions import ImproperlyConfigured
from celery.local import Proxy
from celery.schedules import BaseSchedule
from celery.signals import after_setup_logger, after_setup_task_logger

from uttu.clients.addresses import mask_password
from uttu.errors import ConfigError, UttuError
from uttu.jobs import settings as job_settings
from uttu.jobs.configuration import build_configuration, longest_delay
from uttu.jobs.settings import JobSettings, without_management
from uttu.jobs.started import StartedRecorder, delay_started
from uttu.runtime import logs

if TYPE_CHECKING:
    from uttu.jobs.schedules.schedule import Schedule
    from uttu.jobs.schedules.triggers import Trigger

_log = logging.getLogger("uttu.jobs")


@after_setup_logger.connect
@after_setup_task_logger.connect
def _set_up_log(logger: logging.Logger, **_: Any) -> None:
    """Celery has set up the log of a worker or of beat; now add what ``UTTU_LOG_…`` variables ask for."""
    logs.set_up_in_celery(logger)


class App(celery.Celery):
    """A Celery app built from :class:`JobSettings`. Paths are relative to ``folder``.

    Without a broker in the settings it uses the embedded server of the folder, and starts it when a connection is first
    needed.
    """

    task_cls = "uttu.jobs.task:Task"
    amqp_cls = "uttu.jobs.transport:AMQP"
    loader_cls = "uttu.jobs.loader:Loader"

    def __init__(self, settings: JobSettings | None = None, folder: Path | str = ".", **options: Any) -> None:
        self.uttu = JobSettings() if settings is None else settings
        self.folder = Path(folder)
        self.starts = StartedRecorder(self)
        self._recurring: list[tuple[Any, dict[str, Any]]] = []
        super().__init__(options.pop("main", self.uttu.name), **options)
        self._pending_defaults.append(self._sound)

    @classmethod
    def load(cls, folder: Path | str = ".", **options: Any) -> Self:
        """Load the app of a folder from its ``uttu.toml`` and the environment.

        :raises ConfigError: see :func:`uttu.jobs.settings.load_job_settings`.
        """
        return cls(job_settings.load_job_settings(Path(folder)), folder, **options)

    def _sound(self) -> dict[str, Any]:
        """Insert our settings above Celery's defaults and below everything that the user sets.

        Celery calls this while it reads the configuration. A returned value would override the user's module, so it is
        empty.
        """
        broker = self._conf.broker_url or without_management(self.uttu.broker) or self.embedded.url
        ours = build_configuration(self.uttu, broker)
        self._conf.defaults.insert(-1, ours)
        self._conf.maps.insert(-1, ours)
        return {}

    @property
    def embedded(self) -> Any:
        """The embedded server of the folder."""
        if "_embedded" not in self.__dict__:
            from uttu.jobs.embedded import Embedded

            self._embedded = Embedded(self.folder)
        return self._embedded

    def _hold(self) -> None:
        if not self.uttu.broker and self.conf.broker_url == self.embedded.url:
            self.embedded.hold()

    def _connection(self, url: str, *args: Any, **options: Any) -> Any:
        self._hold()
        return super()._connection(url, *args, **options)

    def _get_backend(self) -> Any:
        self._hold()
        given = self.backend_cls or self.conf.result_backend
        try:
            backend, url = backends.by_url(given, self.loader)
            return delay_started(backend)(app=self, url=url)
        except (ImportError, ImproperlyConfigured) as error:
            raise ConfigError(
                f"jobs.backend: {mask_password(str(given))} can't be used: {error}. Try pip install 'uttu[jobs]', or "
                "name another one"
            ) from error

    @property
    def producer_pool(self) -> Any:
        """The producers that send tasks.

        RabbitMQ confirms messages if the settings ask for it, on quorum queues, and when a task that is acknowledged
        late sends them: its own message is acknowledged afterwards.
        """
        sender = self.current_worker_task
        confirmed = self.uttu.confirm or self.uttu.queue_type == "quorum" or (sender and sender.acks_late)
        return self.amqp.confirming_pool if confirmed else self.amqp.producer_pool

    def every(
        self, when: float | str | timedelta | BaseSchedule | Trigger, name: str = "", **more: Any
    ) -> Callable[[Any], Any]:
        """Schedule a task: ``@app.every(30)``, ``@app.every("0 7 * * *")``, ``@app.every(Solar(…))``.

        Use it above ``@app.task`` or above a plain function; it may be repeated.

        :param when: seconds, a crontab line, or a trigger.
        :param name: the name of the schedule; by default the name of the task.
        :param more: keys of a table ``[jobs.schedule.NAME]``: ``args``, ``kwargs``, ``timezone``, ``overlap``,
            ``grace``, ``queue`` …
        :raises ConfigError: ``when`` is not valid.
        """
        from uttu.jobs.schedules.schedule import parse_trigger

        parse_trigger(when, more.get("timezone", self.uttu.timezone))
        table = {"crontab" if isinstance(when, str) else "schedule": when, "name": name, **more}

        def registered(function: Any) -> Any:
            # Accessing an attribute of a proxy would create the task and the configuration, which is too early here.
            made = issubclass(type(function), Proxy) or isinstance(function, celery.Task)
            task = function if made else self.task(function)
            self._recurring.append((task, table))
            return task

        return registered

    def finalize(self, auto: bool = False) -> None:
        """As in Celery; also adds the schedules of :meth:`every` to ``conf.beat_schedule``.

        :raises ConfigError: one of them is invalid.
        """
        with self._finalize_mutex:
            first = not self.finalized
            super().finalize(auto)
            if first:
                self.conf.beat_schedule.update({entry.name: entry for entry in self.entries})

    @property
    def entries(self) -> list[Schedule]:
        """The schedules made with :meth:`every`, in their order.

        :raises ConfigError: one of them is invalid, or two have the same name.
        """
        from uttu.jobs.schedules.schedule import parse_schedule

        found: dict[str, Schedule] = {}
        for task, table in self._recurring:
            name = table["name"] or task.name
            if name in found:
                raise ConfigError(f"schedule {name!r} is there twice: give one of them another name, name=…")
            rest = {key: value for key, value in table.items() if key != "name"}
            found[name] = parse_schedule(name, {"task": task.name, **rest}, "code", self.uttu.timezone)
        return list(found.values())

    def send_task(self, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Send a task by its name, as in Celery.

        :raises ConfigError: its time is further ahead than the broker can keep it.
        """
        if options.get("countdown") or options.get("eta"):
            self._bound(name, options)
        return super().send_task(name, args, kwargs, **options)

    def _bound(self, name: str, options: dict[str, Any]) -> None:
        longest = longest_delay(self.uttu, self.conf.broker_url)
        delay = self._delay(options.get("countdown"), options.get("eta"))
        if longest is None or delay <= longest:
            return
        if options.get("retries"):
            # An error here would end a task that only wants to retry.
            _log.warning(
                "%s is tried again in %g seconds, not in %g: the broker keeps it no longer", name, longest, delay
            )
            options.update(countdown=longest, eta=None)
            return
        raise ConfigError(
            f"task {name} is to run in {delay:,.0f} seconds, but the broker would run it several times beyond "
            f"{longest:,.0f}: make a schedule for it with uttu schedule add, or raise jobs.visibility_seconds"
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


def load_named_app(name: str) -> celery.Celery:
    """Load the app that ``-A`` names, as Celery does.

    :raises ConfigError: it does not exist, or its module raises an error.
    """
    import traceback

    from celery.app.utils import find_app

    try:
        found: celery.Celery = find_app(name)
    except UttuError:
        raise
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"-A {name}: there is no app: {error}") from error
    except Exception as error:
        raise ConfigError(f"-A {name} can't be loaded:\n{traceback.format_exc().rstrip()}") from error
    return found
