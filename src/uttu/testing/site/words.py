"""The words for names, descriptions and filler text."""

from __future__ import annotations

from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ADJECTIVES: Final = _words(
    "quiet bright gentle sturdy amber hidden northern little golden velvet patient morning crooked silver "
    "honest wandering humble painted secret winter copper drifting faithful"
)
MATERIALS: Final = _words("oak linen brass wool clay birch glass leather cotton slate walnut cork iron paper felt")
THINGS: Final = _words(
    "lantern teapot notebook kettle blanket compass clock basket mirror pencil lamp chair bowl satchel "
    "candle umbrella jug stool vase whistle ladder"
)
# Each category and the things that it sells.
CATEGORIES: Final = {
    "Kitchen": ("teapot", "kettle", "bowl", "jug", "bread board", "pepper mill"),
    "Garden": ("watering can", "trowel", "lantern", "bird house", "basket", "bench"),
    "Desk": ("notebook", "pencil case", "lamp", "letter opener", "paperweight", "ink well"),
    "Travel": ("satchel", "compass", "umbrella", "blanket", "flask", "map case"),
    "Home": ("clock", "mirror", "vase", "candle holder", "stool", "coat rack"),
}
PRAISE: Final = (
    "made by hand in small numbers",
    "built to be repaired rather than replaced",
    "lighter than it looks",
    "finished with beeswax and patience",
    "the sort of thing that is handed down",
    "at home in any room",
    "tested by three generations of one family",
    "a favourite of people who own few things",
)
FILLER: Final = _words(
    "the a of and to in river stone light field morning evening road letter garden house window table water "
    "winter summer story paper voice hand wind rain hill bridge market harbour ship cloud music silence "
    "neighbour stranger walked carried opened waited remembered followed answered listened found kept left "
    "slowly often never always quietly almost before after between under across along without until because "
    "small old long bright narrow empty warm distant familiar simple"
)
