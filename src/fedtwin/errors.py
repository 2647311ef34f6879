"""The two ways fedtwin speaks to its user about input."""


class FedtwinError(Exception):
    """Bad input, told in one sentence: the setting, its value and what is allowed. The command line exits with code 2."""


class FedtwinWarning(UserWarning):
    """Input that is legal but cannot do what it asks for, told in one sentence."""


class CannotCompileError(FedtwinError):
    """The compiled engine does not know how; the readable one does."""


class EnginesDifferError(CannotCompileError):
    """Compiled code of the user's own was caught doing something else than what is written."""


class NotFinishedError(FedtwinError):
    """A call was allowed some of its runs only: the next one goes on from there. The command line exits with code 4."""


class UnfitCheckpointError(FedtwinError):
    """A checkpoint that is whole but not of this run."""


class LockedError(FedtwinError):
    """A folder that another process writes."""


class ServedElsewhereError(FedtwinError):
    """Another edge server serves the run, or has begun one of that name."""


class TakenOverError(FedtwinError):
    """Another edge server serves the run by now; this one has stopped."""
