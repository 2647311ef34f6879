"""A process of its own that plays a live run, and tears a line: ``python -m tests.runs.live_writer FOLDER UPLOADS``."""

import sys
import time
from pathlib import Path

from fedtwin.live.run import events
from fedtwin.live.run.chain import sealed
from fedtwin.live.run.tables import write_records
from tests.live.run.test_live_run import begun, deliver, dispatch, weights


def main(folder: Path, uploads: int) -> None:
    live = begun(folder)
    for number in range(uploads):
        time.sleep(0.02)
        deliver(live, dispatch(live), weights(float(number % 3)))
    stopped = events.Stopped(at_s=live.now_s(), finished=True)
    line, _ = sealed(stopped.model_dump_json(exclude_none=True).encode(), live._ledger.digits)
    with (folder / "ledger.jsonl").open("ab", buffering=0) as ledger:
        ledger.write(line[:20])
        time.sleep(0.3)
        ledger.write(line[20:])
    live.core.apply(stopped)
    time.sleep(0.1)
    write_records(folder, live.core, live.model)
    live.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
