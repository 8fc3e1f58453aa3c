"""The SQLite frontier does as the model does."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from unittest import mock

from tests.frontier.machine import SETTINGS, FrontierMachine

from weft.frontier.base import Rules, StoredItem
from weft.frontier.sqlite import Database, SqliteFrontier, admission
from weft.frontier.sqlite.shelves import SqliteOutbox


class SqliteMachine(FrontierMachine):
    def make(self, coin: bool) -> None:
        # How many recent fingerprints are gathered before they join the others.
        self.patch = mock.patch.object(admission, "_FEWEST_RECENT", 4 if coin else 50_000)
        self.patch.start()
        self.folder = Path(tempfile.mkdtemp(prefix="weft-model-"))

    def opened(self, rules: Rules) -> SqliteFrontier:
        return SqliteFrontier(Database.open(self.folder / "crawl.db"), rules, self.clock)

    def items(self) -> list[StoredItem]:
        database = Database.open(self.folder / "crawl.db")
        try:
            return self.run(SqliteOutbox(database, self.clock).items(0, 10_000))
        finally:
            database.close()

    def remove(self) -> None:
        self.patch.stop()
        shutil.rmtree(self.folder)


TestSqliteModel = SqliteMachine.TestCase
TestSqliteModel.settings = SETTINGS
