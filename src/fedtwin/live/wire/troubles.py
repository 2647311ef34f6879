"""What can go wrong between the broker and us, and in which words it is told."""

from fedtwin.live.wire.ports import TransportError

TROUBLES = (TransportError, TimeoutError)


def words_of(error: BaseException) -> str:
    """Never empty, as the words of many errors are."""
    return str(error) or type(error).__name__
