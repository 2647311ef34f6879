"""What can go wrong between the broker and us, and in which words it is told."""

import nats.errors
import nats.js.errors

TROUBLES = (nats.errors.Error, nats.js.errors.Error, TimeoutError)


def words_of(error: BaseException) -> str:
    """Never empty, as the words of many errors are."""
    return str(error) or type(error).__name__
