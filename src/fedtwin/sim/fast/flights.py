"""Uploads on their way: a binary heap, the earliest first, ties by device."""

from fedtwin.sim.fast.layout import Records


def earlier(flights: Records, a: int, b: int) -> bool:
    if flights[a].at_s != flights[b].at_s:
        return bool(flights[a].at_s < flights[b].at_s)
    return bool(flights[a].device < flights[b].device)


def copy(flights: Records, source: int, target: int) -> None:
    """By fields: compiled records have no assignment as a whole."""
    a, b = flights[source], flights[target]
    b.at_s, b.device, b.cost, b.version, b.counted = a.at_s, a.device, a.cost, a.version, a.counted


def lift(flights: Records, spare: int, place: int) -> None:
    """The entry in ``spare`` finds its place at or above ``place``."""
    while place > 0 and earlier(flights, spare, (place - 1) // 2):
        copy(flights, (place - 1) // 2, place)
        place = (place - 1) // 2
    copy(flights, spare, place)


def drop_first(flights: Records, count: int) -> None:
    """Takes the first of ``count`` entries out; the last one sinks from the top."""
    last = count - 1
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and earlier(flights, child + 1, child):
            child += 1
        if not earlier(flights, child, last):
            break
        copy(flights, child, place)
        place = child
    copy(flights, last, place)
