"""The SQLite frontier does as the model does."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from unittest import mock

from tests.frontier.state_machine import SETTINGS, FrontierMachine

from uttu.frontier.base import Rules
from uttu.frontier.sqlite import Database, SqliteFrontier, settlement
from uttu.frontier.sqlite.outbox import SqliteLedger, SqliteOutbox


class SqliteMachine(FrontierMachine):
    def make(self, coin: bool) -> None:
        # How many recent fingerprints are gathered before they join the others.
        self.patch = mock.patch.object(settlement, "_FEWEST_RECENT", 4 if coin else 50_000)
        self.patch.start()
        self.folder = Path(tempfile.mkdtemp(prefix="uttu-model-"))

    def opened(self, rules: Rules) -> SqliteFrontier:
        return SqliteFrontier(Database.open(self.folder / "crawl.db"), rules, self.clock)

    def shelves(self) -> tuple[SqliteOutbox, SqliteLedger]:
        self.database = Database.open(self.folder / "crawl.db")
        return SqliteOutbox(self.database, self.clock), SqliteLedger(self.database, self.clock)

    def remove(self) -> None:
        self.database.close()
        self.patch.stop()
        shutil.rmtree(self.folder)


TestSqliteModel = SqliteMachine.TestCase
TestSqliteModel.settings = SETTINGS
