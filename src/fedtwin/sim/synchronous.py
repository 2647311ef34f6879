"""The synchronous run: a round is M devices, and all wait for the slowest (Sy-fairness, Section V), or for the timeout."""

from fedtwin.formulas.cost import cost
from fedtwin.formulas.timeout import cut_off, is_late, timeout_of
from fedtwin.sim.engine import Asked, Emit, Engine, Pause


def run(engine: Engine, emit: Emit, pause: Pause, selections: int = 0) -> None:
    """Rounds of M selections until T selections are made; every one is charged the time that its round took.

    ``selections`` have been made before.
    """
    wanted = engine.config.run.rounds
    while selections < wanted and engine.coordinator.round < wanted:
        pause()
        selections += _one_round(engine, emit, min(engine.config.fleet.channels, wanted - selections))


def _one_round(engine: Engine, emit: Emit, wanted: int) -> int:
    engine.coordinator.open_round()
    answers: list[Asked] = []
    accepted: list[Asked] = []
    while len(accepted) < wanted and (asked := engine.ask_the_best()) is not None:
        answers.append(asked)
        if asked.plan.feasible:
            accepted.append(asked)
    world, timeout_s = engine.world, timeout_of(engine.config)
    slowest_s = max((asked.plan.compute_s + asked.plan.upload_s for asked in accepted), default=world.terms.max_time_s)
    slowest_s = min(slowest_s, timeout_s)
    late = [is_late(asked.plan, timeout_s) for asked in answers]
    if any(late):
        answers = [asked._replace(plan=cut_off(asked.plan, timeout_s)) for asked in answers]
    charged = [
        cost(world.terms_of(asked.decision.device), slowest_s, asked.plan.compute_j + asked.plan.upload_j) for asked in answers
    ]
    rows = [engine.row(asked, cost_charged) for asked, cost_charged in zip(answers, charged, strict=True)]
    for asked in accepted:
        engine.accept(asked.decision.device, asked.draw, asked.plan, in_vain=is_late(asked.plan, timeout_s))
    engine.clock_s += slowest_s
    for asked, cost_charged, row, dropped in zip(answers, charged, rows, late, strict=True):
        train_loss = None
        if dropped:
            engine.drop(asked.decision.device, cost_charged, slowest_s, asked.plan)
        elif asked.plan.feasible:
            _, train_loss = engine.report(asked.decision.device, cost_charged, slowest_s, asked.plan)
        emit(row._replace(train_loss=train_loss, dropped=dropped), slowest_s)
    if engine.learner is not None:
        engine.learner.round_closed()
    return len(accepted)
