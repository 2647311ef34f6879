"""No device has more than three times its fair share of the model (``live.influence_shares``), unless the edge server itself
has chosen so.

Of the last W uploads, W = max(100, 10 N), a device may have 3 W / K that were not chosen: K are the devices that take part.
An upload was chosen if another device could have been asked in its place. It was not where its device was the only one left
(the others were at work), and where its task had been given up. What is over is refused, so that the bound is the same for
every rule of aggregation. With up to three devices 3 W / K is the whole window: a third, a half or all is their fair share.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

LEAST_WINDOW, WINDOW_PER_DEVICE = 100, 10


@dataclass
class Influence:
    """The last uploads, and whose they were. A state that changes by events only."""

    window: deque[tuple[int, bool]] = field(default_factory=deque)
    uploads: Counter[int] = field(default_factory=Counter)
    unchosen: Counter[int] = field(default_factory=Counter)

    def mixed_in(self, device: int, *, chosen: bool, devices: int) -> None:
        self._make_room(_window(devices))
        self.window.append((device, chosen))
        self.uploads[device] += 1
        self.unchosen[device] += not chosen

    def _make_room(self, size: int) -> None:
        while len(self.window) >= size:
            device, chosen = self.window.popleft()
            self.uploads[device] -= 1
            self.unchosen[device] -= not chosen
            if not self.uploads[device]:
                del self.uploads[device], self.unchosen[device]

    def excess(self, device: int, *, taking_part: int, devices: int, shares: float) -> str | None:
        """Why an upload that was not chosen is not mixed in, or None. ``devices`` is N, ``taking_part`` K."""
        size = _window(devices)
        full_of_its_own = len(self.window) >= size and self.window[0] == (device, False)
        own = self.unchosen[device] + 1 - full_of_its_own
        if own * taking_part <= shares * size:
            return None
        most = int(shares * size // taking_part)
        return f"share: {most} of {size} uploads are {shares:g} times its fair share among {taking_part} devices"


def _window(devices: int) -> int:
    return max(LEAST_WINDOW, WINDOW_PER_DEVICE * devices)
