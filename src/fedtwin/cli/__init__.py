"""The command line. Bad input is one sentence on standard error and exit code 2; an interruption is 130."""

import sys
import warnings
from pathlib import Path

from fedtwin.errors import FedtwinError, FedtwinWarning

BAD_INPUT, INTERRUPTED = 2, 130


def main() -> None:
    """Entry point of ``fedtwin``."""
    warnings.simplefilter("always", FedtwinWarning)
    warnings.showwarning = _show_warning
    sys.path.append(str(Path.cwd()))  # policies and models of the user's own, named module:attribute
    try:
        from fedtwin.cli.app import app

        code = app(prog_name="fedtwin", standalone_mode=False) or 0
    except FedtwinError as error:
        print(f"error: {error}", file=sys.stderr)
        code = BAD_INPUT
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        print(f"error: {error.format_message().rstrip('.')}.", file=sys.stderr)
        code = BAD_INPUT
    if code == INTERRUPTED:
        print("interrupted", file=sys.stderr)
    sys.exit(code)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {message}", file=sys.stderr)
