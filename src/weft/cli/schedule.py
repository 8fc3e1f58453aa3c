"""``weft schedule``: tasks and crawls that run again and again."""

from __future__ import annotations

import typer

from weft.cli import (
    schedule_add,
    schedule_ls,
    schedule_pause,
    schedule_preview,
    schedule_resume,
    schedule_rm,
    schedule_run,
)
from weft.cli.jobs_celery import choose_app

schedule = typer.Typer(
    help="Have tasks and crawls run again and again. A beat starts them: weft jobs beat, or weft up.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


schedule.callback()(choose_app)


schedule.command("add")(schedule_add.add)
schedule.command("ls")(schedule_ls.ls)
schedule.command("preview")(schedule_preview.preview)
schedule.command("pause")(schedule_pause.pause)
schedule.command("resume")(schedule_resume.resume)
schedule.command("run")(schedule_run.run)
schedule.command("rm")(schedule_rm.rm)
