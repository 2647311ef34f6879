"""A network of the user's own is built and tried in a second process too: it must be the same network there.

Chance at import, and the order of a set of strings, which differs from process to process, show only there.
"""

import sys
import warnings
from typing import TYPE_CHECKING

from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.processes import asked_elsewhere
from fedtwin.usercode import code_digest, only_here

if TYPE_CHECKING:
    from fedtwin.learning.executors import Workload

_compared: set[tuple[object, ...]] = set()
"""Networks that have passed in this process: the runs of a sweep ask once."""


def require_the_same_elsewhere(workload: "Workload") -> None:
    """Networks that only this process has, those of a notebook, cannot be had in another one, and are not asked."""
    name, own = workload.learning.model, workload.learning.own_code
    if ":" not in name or any(map(only_here, own.values())) or not sys.executable:
        return
    digests = [code_digest(setting, of, workload.code_folder) for setting, of in own.items()]
    key = (name, *digests, workload.learning.task, workload.shape, workload.outputs)
    if key in _compared:
        return
    setting = f"learning.model = {name!r}"
    found = _fingerprint_elsewhere(workload)
    if found is None:
        sentence = f"{setting} could not be made in a second process: whether it is the same network there is not known."
        warnings.warn(sentence, FedtwinWarning, stacklevel=3)
    elif found != workload.fingerprint():
        raise FedtwinError(
            f"{setting} is another network in another process: all its chance must be from torch's generator, in the factory, "
            "nothing may depend on the order of a set, and its files must be what was loaded here."
        )
    _compared.add(key)


def fingerprint_of(given: "tuple[int, Workload]") -> str:
    """What the second process does."""
    import torch

    threads, workload = given
    torch.set_num_threads(threads)
    return workload.fingerprint()


def _fingerprint_elsewhere(workload: "Workload") -> str | None:
    import torch

    return asked_elsewhere(__name__, fingerprint_of.__name__, (torch.get_num_threads(), workload))
