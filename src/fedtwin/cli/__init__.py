"""The command line. Bad input is one sentence on standard error and exit code 2; a run in which nobody was selected is 3,
a figure that is not finished within its limits 4, an interruption 130, output that nobody reads 141."""

import errno
import sys
import warnings
from pathlib import Path

from fedtwin.cli.terminal import BAD_INPUT, Terminal
from fedtwin.errors import FedtwinError, FedtwinWarning

INTERRUPTED = 130


def main() -> None:
    """Entry point of ``fedtwin``."""
    terminal = Terminal()
    warnings.simplefilter("always", FedtwinWarning)
    warnings.showwarning = _show_warning
    sys.path.append(str(Path.cwd()))  # policies and models of the user's own, named module:attribute
    try:
        from fedtwin.processes import interrupts_never_dropped

        with interrupts_never_dropped():
            from fedtwin.cli.app import app

            code = app(prog_name="fedtwin", standalone_mode=False) or 0
    except FedtwinError as error:
        print(f"error: {error}", file=sys.stderr)
        code = BAD_INPUT
    except KeyboardInterrupt:
        code = INTERRUPTED
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        print(f"error: the path '{str(error.filename)[:60]}…' is too long for this system.", file=sys.stderr)
        code = BAD_INPUT
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        print(f"error: {error.format_message().rstrip('.')}.", file=sys.stderr)
        code = BAD_INPUT
    if code == INTERRUPTED:
        print("interrupted", file=sys.stderr)
        exec("")  # makes Python forget one that passed through exec() or eval(): after ``-m`` it would end by the signal
    sys.exit(terminal.exit_code(code))


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {message}", file=sys.stderr)
