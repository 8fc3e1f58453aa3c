"""Where tasks come from: modules by their names, and files (``tasks.py``) by their paths."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from celery.loaders.app import AppLoader

from weft.errors import ConfigError, WeftError


class Loader(AppLoader):
    """Celery's loader, and files. Paths are from the app's folder on; tasks are named after the file: ``tasks.add``."""

    def on_worker_init(self) -> None:
        """The guard of scheduled tasks has to hear of those that never begin, and that is said in this process."""
        from weft.jobs.schedules import guard_of

        guard_of(self.app)

    def import_task_module(self, module: str) -> Any:
        """A module with tasks, by its name or its path.

        :raises ConfigError: it is not there, or has an error.
        """
        _importable(self.app.folder)
        self.task_modules.add(module)
        try:
            return _from_file(self.app.folder / module) if module.endswith(".py") else self.import_from_cwd(module)
        except WeftError:
            raise
        except ModuleNotFoundError as error:
            if error.name != module.partition(".")[0] and error.name != module:
                raise ConfigError(_explained(module, error)) from error
            raise ConfigError(f"jobs.include: there is no module {module!r}; a file is written {module}.py") from error
        except Exception as error:
            raise ConfigError(_explained(module, error)) from error


def _importable(folder: Path) -> None:
    name = str(folder.resolve())
    if name not in sys.path:
        sys.path.insert(0, name)


def _explained(module: str, error: Exception) -> str:
    """The traceback, from the module's own lines on."""
    frames = traceback.extract_tb(error.__traceback__)
    stem = module.removesuffix(".py").replace(".", "/").rpartition("/")[2]
    own = next((index for index, frame in enumerate(frames) if Path(frame.filename).stem == stem), 0)
    lines = traceback.format_list(frames[own:]) + traceback.format_exception_only(error)
    return f"jobs.include: {module} can't be loaded:\n{''.join(lines).rstrip()}"


def _from_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise ConfigError(f"jobs.include: there is no file {path}")
    known = sys.modules.get(path.stem)
    if known is not None:
        if Path(known.__file__ or "").resolve() != path:
            raise ConfigError(
                f"jobs.include: {path} can't be loaded as {path.stem!r}, because that is "
                f"{known.__file__ or 'a part of Python'}: give the file another name"
            )
        return known
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"jobs.include: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    _importable(path.parent)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module
