"""How long a device is left alone whose tasks come to nothing."""

from fedtwin.live.run.back_off import MOST_S, BackOff


def test_the_time_doubles_until_something_is_delivered() -> None:
    back_off = BackOff(1.0, 0.5)
    waits = []
    for number in range(14):
        back_off.failed(7, 10.0 * number)
        waits.append(back_off.until_s(7, needed=False) - 10.0 * number)
    assert waits == [0.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2 * MOST_S, 2 * MOST_S, 2 * MOST_S]
    assert back_off.until_s(7, needed=True) == 130.0 + 2.0, "nobody gains by a longer one"
    back_off.delivered(7)
    assert not back_off.holds_after_another(7) and back_off.until_s(7, needed=False) == 0.0


def test_it_is_forgotten_in_time() -> None:
    back_off = BackOff(1.0, 1.0)
    for _ in range(5):
        back_off.failed(0, 0.0)
    back_off.failed(0, 2 * MOST_S)
    assert back_off.failures[0] == (6, 2 * MOST_S)
    back_off.failed(0, 4 * MOST_S + 1.0)
    assert back_off.failures[0] == (1, 4 * MOST_S + 1.0)
