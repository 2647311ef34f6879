"""A program that burns so much CPU and touches nobody: ``python -m tests.live.burner SHARE`` of one core, in short pieces."""

import sys
import time

PIECE_S = 0.1


def main() -> None:
    share = float(sys.argv[1])
    begun, used = time.monotonic(), time.process_time()
    while True:
        while time.process_time() - used < share * (time.monotonic() - begun):
            pass
        time.sleep(PIECE_S)


if __name__ == "__main__":
    main()
