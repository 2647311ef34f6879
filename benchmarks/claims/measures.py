"""Every measurement by the name its row of docs/claims.md has."""

from collections.abc import Callable

from benchmarks.claims import proofs, scheduling, theory

MEASURES: dict[str, Callable[[], str]] = {
    "order": scheduling.order,
    "footnote": scheduling.footnote,
    "decomposition": scheduling.decomposition,
    "waiting": scheduling.waiting,
    "updates": scheduling.updates,
    "staleness": scheduling.staleness,
    "uploads": scheduling.uploads,
    "c1": scheduling.c1,
    "limits": scheduling.limits,
    "queue-rate": scheduling.queue_rate,
    "penalty": scheduling.penalty,
    "bonus": scheduling.bonus_clips,
    "evenness": scheduling.evenness,
    "available": scheduling.available,
    "closed-form": theory.closed_form,
    "branches": theory.branches,
    "derivatives": theory.derivatives,
    "convexity": theory.convexity,
    "rate": theory.printed_rate,
    "terms": theory.terms_of_theorem_1,
    "kink": theory.kink,
    "drift": theory.drift,
    "fresh": theory.fresh_upload,
    "raw-data": theory.raw_data,
    "proof": proofs.sums_of_the_proof,
    "noise": proofs.noise,
    "dirichlet": proofs.dirichlet,
    "bits": proofs.network_bits,
}
