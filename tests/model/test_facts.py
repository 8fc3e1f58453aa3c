"""Facts of a crawl: every one has a codec, and is read as it was encoded."""

from __future__ import annotations

from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uttu.errors import StoreError
from uttu.model import Pace
from uttu.model.crawl import CrawlState, Reason, Rules
from uttu.model.facts import CrawlFacts, FactChanges, FileRecord, SliceMark, decode_facts, encode_facts

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
WORD = st.text("abc.:19", min_size=1)
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from(CrawlState),
        "reason": st.builds(Reason, TEXT | st.sampled_from(["interrupted", "moved to x", "being moved here from y"])),
        "spider": TEXT,
        "file": TEXT,
        "arguments": st.dictionaries(TEXT, TEXT),
        "flags": st.dictionaries(TEXT, st.none() | st.booleans() | st.integers(-99, 99) | TEXT | st.lists(TEXT)),
        "withheld": st.dictionaries(TEXT, st.booleans()),
        "outputs": st.lists(TEXT).map(tuple),
        "began": st.integers(0, 4_000_000_000).map(float),
        "pace": st.builds(Pace, st.floats(0, 1e6), st.integers(0, 99)),
        "rules": st.builds(Rules, pace=st.builds(Pace, st.floats(0, 1e6), st.integers(0, 99)), probe=st.booleans()),
        "start_hosts": st.frozensets(WORD),
        "seeded": st.booleans(),
        "fed": st.booleans(),
        "unattended": st.booleans(),
        "written": st.dictionaries(TEXT, st.builds(FileRecord, inode=st.integers(0, 2**63), closed=st.booleans())),
        "slices": st.dictionaries(TEXT, st.builds(SliceMark, st.integers(1, 999), st.integers(0, 4 * 10**9))),
    },
)


def test_changes_have_the_names_and_types_of_facts() -> None:
    facts, changes = get_type_hints(CrawlFacts), get_type_hints(FactChanges)
    assert changes.keys() == facts.keys() == set(CrawlFacts.__struct_fields__)
    optional = {"state", "pace", "rules"}
    assert {name: hint for name, hint in changes.items() if name not in optional} == {
        name: hint for name, hint in facts.items() if name not in optional
    }
    assert all(facts[name] == changes[name] | None for name in optional)


@given(FACTS)
def test_facts_are_read_as_they_were_encoded(changes: FactChanges) -> None:
    stored = encode_facts(changes)
    assert all(isinstance(text, str) for text in stored.values())
    assert decode_facts(stored) == CrawlFacts(**changes)


@pytest.mark.parametrize(
    ("name", "text"),
    [("state", "x"), ("flags", "{"), ("outputs", "{}"), ("began", "now"), ("job 1", "x"), ("written /a", "")],
)
def test_a_fact_that_can_not_be_read_is_named(name: str, text: str) -> None:
    with pytest.raises(StoreError, match=f"Cannot read the crawl's {name}"):
        decode_facts({name: text})
