"""Whether a configuration could be run: all that it names is loaded and tried, nothing is run."""

from fedtwin.config import Config, without_effect
from fedtwin.learning.aggregation import aggregation_of
from fedtwin.learning.charges import charged, undercharged_among
from fedtwin.learning.notices import never_gathered, notices_of, variances_out_of_bounds
from fedtwin.learning.passed_over import passed_over
from fedtwin.learning.rates import other_than_the_schedule
from fedtwin.sim import impossible_min_mean_samples
from fedtwin.sim.run import load_parts


def check(config: Config) -> list[str]:
    """A sentence for everything that is legal but cannot be had; what is wrong is an error."""
    config = charged(config)
    load_parts(config)
    sentences = [] if config.learning is None else _check_learning(config)
    return [*sentences, *(one for one in (impossible_min_mean_samples(config), without_effect(config)) if one)]


def _check_learning(config: Config) -> list[str]:
    from fedtwin.learning.data import load_dataset
    from fedtwin.learning.executors import make_workload
    from fedtwin.world.fleet import make_fleet

    assert config.learning is not None
    rule = aggregation_of(config)
    data = load_dataset(config.learning.dataset, config.learning, ("test",))
    workload = make_workload(config, data.shape, data.outputs)
    layout, _ = workload.initial()
    workload.check([device.least_samples for device in make_fleet(config)])
    is_live = config.live is not None  # then boards measure what they spend, and bring their samples along
    charge = None if is_live else undercharged_among([config])
    rate = None if is_live else other_than_the_schedule(config)
    variances = variances_out_of_bounds(config.learning, rule, layout)
    told = (charge, variances, passed_over(config), never_gathered(config, rule), rate)
    return [*notices_of(config, of_boards=is_live), *(one for one in told if one)]
