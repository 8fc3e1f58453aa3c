"""Load task modules: modules by name, and files (``tasks.py``) by path.

Errors in a user's module are reported as ``ConfigError`` with the traceback of that module only.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from celery.loaders.app import AppLoader

from uttu.errors import ConfigError, UttuError


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
            raise ConfigError(f"jobs.include: there is no module {module!r}; a file is written {module}.py") from error
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
    own = next((index for index, frame in enumerate(frames) if Path(frame.filename).stem == stem), 0)
    lines = traceback.format_list(frames[own:]) + traceback.format_exception_only(error)
    return f"jobs.include: {module} can't be loaded:\n{''.join(lines).rstrip()}"


def _load_file(path: Path) -> ModuleType:
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
    _add_to_path(path.parent)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module
