"""``python -m fedtwin`` is ``fedtwin``."""

from fedtwin.cli import main

main()
