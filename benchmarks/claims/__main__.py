"""Prints the numbers, a line each."""

import sys

from benchmarks.claims import measures


def main() -> None:
    unknown = [name for name in sys.argv[1:] if name not in measures.MEASURES]
    if unknown:
        sys.exit(f"{unknown[0]!r} is unknown: choose among {', '.join(measures.MEASURES)}.")
    for name in sys.argv[1:] or measures.MEASURES:
        print(f"{name}: {measures.MEASURES[name]()}", flush=True)


if __name__ == "__main__":
    main()
