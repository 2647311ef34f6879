"""People who look at the page of a run, without their browsers: each hears the events, and asks what the page asks.

python -m benchmarks.viewers ADDRESS COUNT  # until the run ends; prints what they were told, as JSON
"""

import json
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress

RUN = "/api/runs/run"
FRESH_EVERY_S, AGAIN_EVERY = 1.0, 3
"""As in the page's live.js and load.js."""
LIMIT_S = 900.0


class Viewer:
    def __init__(self, address: str) -> None:
        self._address = address
        self._news, self._over, self._end_s = threading.Event(), threading.Event(), 0.0
        self.events = self.answers = self.bytes = self.refused = 0

    def look(self) -> None:
        for path in ("/", "/api/runs"):
            self._ask(path)
        threading.Thread(target=self._keep_fresh, daemon=True).start()
        with suppress(OSError), urllib.request.urlopen(f"{self._address}{RUN}/events", timeout=LIMIT_S) as stream:
            for line in stream:
                self.bytes += len(line)
                if line.startswith(b"event: finished"):
                    break
                if line.startswith(b"data:"):
                    self.events += 1
                    self._end_s = json.loads(line[5:]).get("seconds", self._end_s)
                    self._news.set()
        self._over.set()
        self._news.set()

    def _keep_fresh(self) -> None:
        """What is costly to make is asked once in a while, if anything has happened."""
        count = 0
        while self._news.wait() and not self._over.is_set():
            self._news.clear()
            count += 1
            window = f"from_s={max(self._end_s - 20.0, 0.0)!r}&to_s={self._end_s + 10.0!r}"
            paths = [f"{RUN}/fleet?at=latest", f"{RUN}/curves?points=180", f"{RUN}/tasks?{window}&limit=2000"]
            for path in paths + [RUN, f"{RUN}/places"] * (count % AGAIN_EVERY == 0):
                self._ask(path)
            self._over.wait(FRESH_EVERY_S)

    def _ask(self, path: str) -> None:
        try:
            with urllib.request.urlopen(self._address + path, timeout=LIMIT_S) as answer:
                self.bytes += len(answer.read())
            self.answers += 1
        except urllib.error.HTTPError:
            self.refused += 1
        except OSError:  # the page is gone: the run is over
            self._over.set()


def main(address: str, count: int) -> None:
    viewers = [Viewer(address) for _ in range(count)]
    threads = [threading.Thread(target=viewer.look) for viewer in viewers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = {name: sum(getattr(one, name) for one in viewers) for name in ("events", "answers", "refused", "bytes")}
    print(json.dumps({**told, "cpu_s": time.process_time()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
