"""The app: Celery with Uttu's configuration, and the loader of its task modules.

Later sources override earlier ones: Celery's defaults < ours (:mod:`uttu.jobs.configuration`), built from ``uttu.toml``
and the environment < a module given to ``config_from_object`` < values set in code (``app.conf.…``) < Celery's own
environment variables.

Task modules are loaded by name, or as files (``tasks.py``) by path. Errors in a user's module are reported as
``ConfigError`` with the traceback of that module only.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import celery
from celery.app import backends
from celery.exceptions import ImproperlyConfigured
from celery.loaders.app import AppLoader
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
    loader_cls = "uttu.jobs.app:Loader"

    def __init__(self, settings: JobSettings | None = None, folder: Path | str = ".", **options: Any) -> None:
        self.uttu = JobSettings() if settings is None else settings
        self.folder = Path(folder)
        self.started = StartedRecorder(self)
        self._recurring: list[tuple[Any, dict[str, Any]]] = []
        super().__init__(options.pop("main", self.uttu.name), **options)
        self._pending_defaults.append(self._insert_configuration)

    @classmethod
    def load(cls, folder: Path | str = ".", **options: Any) -> Self:
        """Load the app of a folder from its ``uttu.toml`` and the environment.

        :raises ConfigError: see :func:`uttu.jobs.settings.load_job_settings`.
        """
        return cls(job_settings.load_job_settings(Path(folder)), folder, **options)

    def _insert_configuration(self) -> dict[str, Any]:
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

    def start_embedded(self) -> None:
        """Start the embedded server if this app uses it, and keep it running while this process lives."""
        if not self.uttu.broker and self.conf.broker_url == self.embedded.url:
            self.embedded.hold()

    def _connection(self, url: str, *args: Any, **options: Any) -> Any:
        self.start_embedded()
        return super()._connection(url, *args, **options)

    def _get_backend(self) -> Any:
        self.start_embedded()
        address = self.backend_cls or self.conf.result_backend
        try:
            backend, url = backends.by_url(address, self.loader)
            return delay_started(backend)(app=self, url=url)
        except (ImportError, ImproperlyConfigured) as error:
            raise ConfigError(
                f'jobs.backend: Cannot use {mask_password(str(address))}: {error}. Install the "jobs" extra '
                "(pip install 'uttu[jobs]'), or set another backend"
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

        def register(function: Any) -> Any:
            # Accessing an attribute of a proxy would create the task and the configuration, which is too early here.
            is_task = issubclass(type(function), Proxy) or isinstance(function, celery.Task)
            task = function if is_task else self.task(function)
            self._recurring.append((task, table))
            return task

        return register

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

        schedules: dict[str, Schedule] = {}
        for task, table in self._recurring:
            name = table["name"] or task.name
            if name in schedules:
                raise ConfigError(f"Two schedules have the name {name!r}. Give one of them another name with name=…")
            rest = {key: value for key, value in table.items() if key != "name"}
            schedules[name] = parse_schedule(name, {"task": task.name, **rest}, "code", self.uttu.timezone)
        return list(schedules.values())

    def send_task(self, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Send a task by its name, as in Celery.

        :raises ConfigError: its time is further ahead than the broker can keep it.
        """
        if options.get("countdown") or options.get("eta"):
            self._limit_delay(name, options)
        return super().send_task(name, args, kwargs, **options)

    def _limit_delay(self, name: str, options: dict[str, Any]) -> None:
        longest = longest_delay(self.uttu, self.conf.broker_url)
        delay = self._delay_seconds(options.get("countdown"), options.get("eta"))
        if longest is None or delay <= longest:
            return
        if options.get("retries"):
            # An error here would end a task that only wants to retry.
            _log.warning("Retrying %s in %g seconds instead of %g: the broker keeps it no longer", name, longest, delay)
            options.update(countdown=longest, eta=None)
            return
        raise ConfigError(
            f"Cannot send task {name} with a delay of {delay:,.0f} seconds: with more than {longest:,.0f} the broker "
            "would run it several times. Make a schedule with uttu schedule add, or raise jobs.visibility_seconds"
        )

    def _delay_seconds(self, countdown: float | None, eta: datetime | str | None) -> float:
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


class Loader(AppLoader):
    """Celery's loader plus files. Paths are relative to the app's folder; the file is the prefix of its tasks:
    ``tasks.add``.
    """

    def on_worker_init(self) -> None:
        """Create the app's ``RunOnce`` in the main process, which gets the signals of tasks that never begin."""
        from uttu.jobs.schedules import run_once_of

        run_once_of(self.app)

    def import_task_module(self, module: str) -> Any:
        """Import a module with tasks, by name or by path.

        :raises ConfigError: it does not exist, or raises an error.
        """
        _add_to_path(self.app.folder)
        self.task_modules.add(module)
        try:
            return _load_file(self.app.folder / module) if module.endswith(".py") else self.import_from_cwd(module)
        except UttuError:
            raise
        except ModuleNotFoundError as error:
            if error.name != module.partition(".")[0] and error.name != module:
                raise ConfigError(_explain_error(module, error)) from error
            raise ConfigError(
                f"jobs.include: There is no module {module!r}. If it is a file, write {module}.py"
            ) from error
        except Exception as error:
            raise ConfigError(_explain_error(module, error)) from error


def _add_to_path(folder: Path) -> None:
    name = str(folder.resolve())
    if name not in sys.path:
        sys.path.insert(0, name)


def _explain_error(module: str, error: Exception) -> str:
    """Return the traceback from the first line of the module on."""
    frames = traceback.extract_tb(error.__traceback__)
    stem = module.removesuffix(".py").replace(".", "/").rpartition("/")[2]
    first = next((index for index, frame in enumerate(frames) if Path(frame.filename).stem == stem), 0)
    lines = traceback.format_list(frames[first:]) + traceback.format_exception_only(error)
    return f"jobs.include: Cannot load {module}:\n{''.join(lines).rstrip()}"


def _load_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise ConfigError(f"jobs.include: There is no file {path}")
    loaded = sys.modules.get(path.stem)
    if loaded is not None:
        if Path(loaded.__file__ or "").resolve() != path:
            raise ConfigError(
                f"jobs.include: Cannot load {path} as {path.stem!r}, because that name is taken by "
                f"{loaded.__file__ or 'a part of Python'}. Give the file another name"
            )
        return loaded
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"jobs.include: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    _add_to_path(path.parent)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module
