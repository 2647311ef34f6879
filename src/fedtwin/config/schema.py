"""Every setting, validated, with its unit in its name. Defaults: Section V of the paper, completed in docs/symbols.md."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fedtwin.config.fleet_csv import OWN, read_fleet_csv
from fedtwin.registry import TASKS, Kind, Mode, find_scheme, is_built_in, known_names, names_of, target_of

TINY, HUGE = 1e-40, 1e40
AVERAGED_FROM_ROUNDS = 2000
"""Runs of so many rounds never lost by an average, and shorter ones did, in docs/learning.md#the-model-that-is-served."""
KIND_OF_PART: dict[str, Kind] = {
    "policy.name": "policies",
    "world.channel": "channels",
    "world.load": "loads",
    "world.availability": "availabilities",
    "world.sensing": "sensings",
}
"""The settings that name a part which may be the user's own."""


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    return value


def _not_extreme(value: float) -> float:
    if value != 0.0 and not TINY <= abs(value) <= HUGE:
        raise ValueError(f"its size must lie between {TINY:g} and {HUGE:g}")
    return value


Real = Annotated[float, BeforeValidator(_no_bool)]
Whole = Annotated[int, BeforeValidator(_no_bool)]
Positive = Annotated[Real, Field(gt=0), AfterValidator(_not_extreme)]
NotNegative = Annotated[Real, Field(ge=0), AfterValidator(_not_extreme)]


def _one_for_all(value: Any) -> Any:
    return (value, value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _in_order(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[1] < pair[0]:
        raise ValueError(f"the most, {pair[1]:g}, is below the least, {pair[0]:g}")
    return pair


Range = Annotated[tuple[Positive, Positive], BeforeValidator(_one_for_all), AfterValidator(_in_order)]
Share = Annotated[Real, Field(ge=0, le=OWN["samples_spread"][1])]
Spread = Annotated[tuple[Share, Share], BeforeValidator(_one_for_all), AfterValidator(_in_order)]
"""The least and the most that is drawn for a device; one number is everybody's."""


A_NUMBER, A_WORD = "a number", "a word"
Bits = Annotated[
    Annotated[Positive, Tag(A_NUMBER)] | Annotated[Literal["model"], Tag(A_WORD)],
    Discriminator(lambda value: A_WORD if value == "model" else A_NUMBER),
]
"""So many bits, or those of the model that is trained."""


class Section(BaseModel):
    """Frozen; an unknown key, NaN or infinity is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=False)


class FleetConfig(Section):
    """Who is there: N devices around the edge server, M sub-channels."""

    devices: Whole = Field(30, ge=1, le=10_000_000, description="N, number of devices")
    channels: Whole = Field(15, ge=1, description="M, number of sub-channels, so of devices in flight")
    radius_m: Positive = Field(500.0, description="radius of the disc the devices are placed in")
    min_distance_m: Positive = Field(10.0, description="no device is nearer to the server than this")
    samples_min: Whole = Field(70, ge=1, le=10**12, description="smallest D_n, samples per local training")
    samples_max: Whole = Field(100, ge=1, le=10**12, description="largest D_n")
    samples_spread: Spread | None = Field(None, description="[least, most]: D_n(t) is in D_n (1 ± this); 0 without")
    max_power_w: Range | None = Field(None, description="p_n^max of the devices, [least, most]; radio.max_power_w without")
    cycles_per_sample: Range | None = Field(None, description="c_n, [least, most]; compute.cycles_per_sample without")
    update_bits: Range | None = Field(None, description="z_n, [least, most]; radio.update_bits without")
    max_time_s: Range | None = Field(None, description="T_max of a device, [least, most]; objective.max_time_s without")
    max_energy_j: Range | None = Field(None, description="E_max of a device, [least, most]; objective.max_energy_j without")
    file: str | None = Field(None, description="CSV of your own devices (docs/configuration.md) instead of drawn ones")

    @model_validator(mode="before")
    @classmethod
    def _count_the_devices_of_the_file(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or not data.get("file"):
            return data
        in_file = len(read_fleet_csv(Path(str(data["file"]))))
        if data.get("devices", in_file) != in_file:
            raise ValueError(f"devices = {data['devices']}, but the file {data['file']} lists {in_file}")
        if (drawn := next((name for name in OWN if data.get(name) is not None), None)) is not None:
            raise ValueError(
                f"{drawn} = {data[drawn]} is for drawn devices: those of the file {data['file']} have a column for it"
            )
        return {**data, "devices": in_file}

    @model_validator(mode="after")
    def _ranges_are_in_order(self) -> "FleetConfig":
        if self.channels > self.devices:
            raise ValueError(f"channels = {self.channels} is more than devices = {self.devices}")
        if self.samples_max < self.samples_min:
            raise ValueError(f"samples_max = {self.samples_max} is below samples_min = {self.samples_min}")
        if self.radius_m <= self.min_distance_m:
            raise ValueError(f"radius_m = {self.radius_m} must exceed min_distance_m = {self.min_distance_m}")
        return self


class RadioConfig(Section):
    """The uplink of one sub-channel."""

    bandwidth_hz: Positive = Field(1e6, description="W, bandwidth of one sub-channel")
    noise_dbm: Real = Field(-154.0, ge=-300, le=100, description="δ0², total noise power in one sub-channel")
    max_power_w: Positive = Field(1.0, description="p_max")
    update_bits: Bits = Field(8e6, description="z, bits of one upload; model: those of what is trained, as it is sent")

    @field_validator("update_bits", mode="before")
    @classmethod
    def _bits_are_a_number_or_the_models(cls, value: Any) -> Any:
        if isinstance(value, str) and value != "model":
            try:
                return float(value)
            except ValueError:
                raise ValueError("a number is needed, or 'model'") from None
        return value


class ComputeConfig(Section):
    """The processors of the devices."""

    cycles_per_sample: Positive = Field(5e6, description="c, cycles for the whole local training of one sample")
    capacitance: Positive = Field(2e-28, description="ζ, effective capacitance of the chip")
    cpu_hz_min: Positive = Field(1e9, description="smallest mean CPU frequency")
    cpu_hz_max: Positive = Field(3e9, description="largest mean CPU frequency")
    cpu_hz_std: NotNegative = Field(2e8, description="standard deviation of the CPU frequency from round to round")
    cpu_hz_floor: Positive = Field(1e8, description="slower draws are clipped here")

    @model_validator(mode="after")
    def _ranges_are_in_order(self) -> "ComputeConfig":
        if self.cpu_hz_max < self.cpu_hz_min:
            raise ValueError(f"cpu_hz_max = {self.cpu_hz_max} is below cpu_hz_min = {self.cpu_hz_min}")
        return self


class ObjectiveConfig(Section):
    """What is minimised, and within which limits (problem P0)."""

    energy_weight: Real = Field(0.5, ge=0, le=1, description="λ_e; the weight of time is λ_t = 1 − λ_e")
    max_time_s: Positive = Field(1.0, description="T_max of constraint C6")
    max_energy_j: Positive = Field(1.2, description="E_max of constraint C5")
    min_mean_samples: NotNegative = Field(1.0, description="D_min of constraint C1, samples per round and device")


class WorldConfig(Section):
    """What the devices of a simulation meet. Parts have settings of their own, in ``[world.channel_settings]`` and so on."""

    channel: str = Field("rayleigh", description="h_n(t): a channel, or module:attribute of your own")
    load: str = Field("normal", description="f_n(t): what is left of a CPU, or module:attribute")
    availability: str = Field("always", description="who answers when asked, or module:attribute")
    sensing: str = Field("uniform", description="D_n(t): how many samples a device has, or module:attribute")
    channel_settings: dict[str, Any] = Field({}, description="settings that the channel declares")
    load_settings: dict[str, Any] = Field({}, description="settings that the load declares")
    availability_settings: dict[str, Any] = Field({}, description="settings that the availability declares")
    sensing_settings: dict[str, Any] = Field({}, description="settings that the sensing declares")

    @field_validator("channel", "load", "availability", "sensing")
    @classmethod
    def _name_is_known(cls, name: str, info: ValidationInfo) -> str:
        kind = KIND_OF_PART[f"world.{info.field_name}"]
        if target_of(kind, name) is None:
            raise ValueError(f"choose one of {names_of(kind)}")
        return name


class TwinConfig(Section):
    """What the edge server knows when it decides."""

    gain: Literal["last-heard", "current", "mean"] = Field(
        "last-heard",
        description="the link it believes in: last heard of, of this moment (sounding), or the mean of those heard",
    )


class PolicyConfig(Section):
    """Who is chosen, and how it sends."""

    name: str = Field("cu-ucb", description="a policy, or a scheme of the paper")
    v: NotNegative = Field(1e5, description="Ṽ, weight of the cost against the queues")
    bonus_scale: NotNegative = Field(1.0, description="factor on the confidence bonus; 1 is the paper's")
    feedback: Literal["on-selection", "on-arrival"] = Field("on-selection", description="when a cost is learned")
    power: Literal["scheme", "optimal", "max"] = Field("scheme", description="power rule; scheme: the paper's for it")
    settings: dict[str, Any] = Field({}, description="settings that the policy declares")

    @field_validator("name")
    @classmethod
    def _name_is_known(cls, name: str) -> str:
        if target_of("policies", name) is None:
            raise ValueError(f"choose one of {known_names()}")
        return name


class RunConfig(Section):
    """How long, from which seed, and in which synchrony."""

    mode: Mode = Field("async", description="async: one device per round; sync: rounds of M devices")
    rounds: Whole = Field(3000, ge=1, le=10**12, description="T, rounds to play; in sync mode selections to make")
    seed: Whole = Field(0, ge=0, lt=2**63, description="seed of the fleet, the channel, the CPUs and the ties")
    engine: Literal["auto", "readable", "compiled"] = Field(
        "auto", description="how a run is computed; no number depends on it"
    )
    records: bool = Field(True, description="false: only the summary is kept, no rounds")
    sync_timeout_s: Positive | None = Field(
        None, description="a synchronous round ends at the latest so long after it began; who is later is dropped"
    )

    @model_validator(mode="after")
    def _a_timeout_is_of_synchronous_rounds(self) -> "RunConfig":
        if self.sync_timeout_s is not None and self.mode != "sync":
            raise ValueError(
                f"sync_timeout_s = {self.sync_timeout_s:g} ends synchronous rounds: mode must be 'sync', not 'async'"
            )
        return self


class LearningConfig(Section):
    """What is trained, and how. A run without this section schedules only."""

    task: Literal["classification", "regression", "multilabel"] = Field("classification", description="what is learned")
    dataset: str = Field("digits", description="`digits`, `fashion-mnist`, `cifar-10`, or data of your own (docs/data.md)")
    input: Literal["auto", "rows", "windows", "images"] = Field("auto", description="what a sample is; auto: by its axes")
    outputs: Whole = Field(
        0, ge=0, le=10**6, description="outputs of the network; 0: the classes, targets or labels of the data"
    )
    normalisation: dict[str, list[float]] = Field({}, description="mean, std, target_mean, target_std; empty: of all samples")
    model: str = Field("mlp", description="`linear`, `mlp`, `tcn`, `small-cnn`, `resnet18` or module:factory")
    loss: str = Field("auto", description="what is minimised, or module:attribute; auto: the task's")
    metric: str = Field("auto", description="what the test set is judged by, or module:attribute; auto: the task's")
    metric_direction: Literal["auto", "higher", "lower"] = Field(
        "auto", description="which is better; auto: higher of your own"
    )
    optimiser: str = Field("sgd", description="`sgd`, `momentum`, `adam`, or module:attribute")
    momentum: Real = Field(0.9, ge=0, lt=1, description="μ of the optimiser `momentum`")
    weight_decay: NotNegative = Field(0.0, description="this times the weights is added to the gradient")
    clip_norm: NotNegative = Field(0.0, description="longest gradient of the loss, a longer one is shortened; 0: any")
    partition: Literal["iid", "dirichlet", "natural"] = Field(
        "iid", description="how classes are mixed on a device; natural: as the data has it"
    )
    dirichlet_gamma: Positive = Field(0.5, description="γ1, concentration of the Dirichlet partition")
    owned_samples: Whole = Field(500, ge=1, le=10**6, description="samples a device owns; D_n of them train in a round")
    local_epochs: Whole = Field(1, ge=1, le=10_000, description="passes over the samples of a round")
    charge_epochs: bool = Field(False, description="true: c is charged once per local epoch, not once per training")
    batch_size: Whole = Field(32, ge=1, le=10**6, description="samples per gradient step")
    learning_rate: Positive = Field(0.05, description="step size of local SGD")
    rate_schedule: Literal["constant", "linear", "cosine"] = Field("constant", description="how the rate falls over the run")
    rate_rounds: Whole = Field(0, ge=0, le=10**12, description="rounds until it has fallen to nothing; 0: those of the run")
    rate_warmup_rounds: Whole = Field(0, ge=0, le=10**12, description="rounds in which it first rises to the learning rate")
    augment: Literal["none", "crop-flip"] = Field("none", description="crop-flip: images are shifted and mirrored by chance")
    proximal: NotNegative = Field(0.005, description="m, weight of the proximal term (m/2)‖w − w_download‖²")
    compress: Literal["none", "float16", "int8", "top-k"] = Field("none", description="what is sent of an upload's change")
    top_k: Real = Field(0.01, gt=0, le=0.5, description="share of the entries that top-k sends, the largest")
    error_feedback: bool = Field(True, description="false: what int8 and top-k leave out is not added to the next change")
    aggregation: str = Field("scheme", description="how uploads are mixed; scheme: fedavg in sync mode, fedasync otherwise")
    aggregation_settings: dict[str, Any] = Field({}, description="settings that the rule has declared for itself")
    mixing: Real = Field(0.6, gt=0, le=1, description="ρ, weight of a fresh upload")
    staleness: Literal["constant", "hinge", "polynomial"] = Field("polynomial", description="s(t − τ)")
    staleness_exponent: NotNegative = Field(0.5, description="a of the polynomial (t − τ + 1)^−a")
    hinge_a: NotNegative = Field(10.0, description="slope of the hinge")
    hinge_b: NotNegative = Field(4.0, description="staleness up to which the hinge is 1")
    buffer_size: Whole = Field(10, ge=1, le=10**6, description="K, uploads that fedbuff, ca2fl and fadas gather for a step")
    average: Literal["auto", "ema", "none"] = Field(
        "auto", description="what is served: an average of the model, or the model itself; auto: by the length of the run"
    )
    average_half_life: Positive = Field(138.0, description="uploads after which one counts half in the average, at most")
    most_refusals: Whole = Field(0, ge=0, le=10**12, description="uploads that may be refused before the run stops")
    evaluate_every_s: Positive = Field(5.0, description="virtual seconds between evaluations on the test set")
    record_gradient: bool = Field(False, description="true: evaluations also have L(w) and ‖∇L(w)‖² over all devices' samples")
    executor: Literal["auto", "serial", "processes", "cuda"] = Field("auto", description="how local trainings are computed")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where they are computed; auto: as the executor says")
    workers: Whole = Field(0, ge=0, le=1024, description="worker processes; 0: one per core")

    @field_validator("normalisation")
    @classmethod
    def _normalisation_is_whole(cls, given: dict[str, list[float]]) -> dict[str, list[float]]:
        for mean, std in (("mean", "std"), ("target_mean", "target_std")):
            if len(given.get(mean, [])) != len(given.get(std, [])):
                raise ValueError(f"{mean} and {std} must have one number each per channel or feature")
        if unknown := sorted(set(given) - {"mean", "std", "target_mean", "target_std"}):
            raise ValueError(f"{unknown[0]} is unknown: mean, std, target_mean and target_std are allowed")
        if not all(0.0 < value <= HUGE for name in ("std", "target_std") for value in given.get(name, [])):
            raise ValueError("a standard deviation must be above 0")
        return given

    @field_validator("optimiser")
    @classmethod
    def _optimiser_is_known(cls, name: str) -> str:
        if target_of("optimisers", name) is None:
            raise ValueError(f"choose one of {names_of('optimisers')}")
        return name

    @model_validator(mode="after")
    def _nothing_of_the_training_is_passed_over(self) -> "LearningConfig":
        if self.momentum != 0.9 and self.optimiser != "momentum":
            raise ValueError(f"momentum = {self.momentum:g} is of optimiser = 'momentum', not of {self.optimiser!r}")
        if self.weight_decay and not is_built_in("optimisers", self.optimiser):
            raise ValueError(
                f"weight_decay = {self.weight_decay:g} is of the optimisers {names_of('optimisers')}: {self.optimiser!r} is "
                "your own, and has its own"
            )
        if self.rate_rounds and self.rate_schedule == "constant":
            raise ValueError(f"rate_rounds = {self.rate_rounds} is of rate_schedule = 'linear' or 'cosine', not of 'constant'")
        if self.augment != "none" and self.input in ("rows", "windows"):
            raise ValueError(f"augment = {self.augment!r} is of images, and input = {self.input!r}")
        return self

    @model_validator(mode="after")
    def _nothing_of_the_compression_is_passed_over(self) -> "LearningConfig":
        if self.top_k != 0.01 and self.compress != "top-k":
            raise ValueError(f"top_k = {self.top_k:g} is of compress = 'top-k', not of {self.compress!r}")
        if not self.error_feedback and self.compress not in ("int8", "top-k"):
            raise ValueError(f"error_feedback = false is of compress = 'int8' or 'top-k', not of {self.compress!r}")
        return self

    @model_validator(mode="after")
    def _task_has_loss_and_metric(self) -> "LearningConfig":
        own = TASKS[self.task]
        chosen: tuple[tuple[str, Kind, str, tuple[str, ...]], ...] = (
            ("loss", "losses", self.loss, own.losses),
            ("metric", "metrics", self.metric, own.metrics),
        )
        for key, kind, name, fit in chosen:
            if name not in ("auto", *fit) and (is_built_in(kind, name) or target_of(kind, name) is None):
                allowed = f"choose auto, {', '.join(fit)}, or module:attribute of your own"
                raise ValueError(f"{key} = {name!r} is not for task = {self.task!r}: {allowed}")
        if self.partition == "dirichlet" and self.task != "classification":
            raise ValueError(f"partition = 'dirichlet' mixes classes, and task = {self.task!r} has none: choose iid or natural")
        return self

    @property
    def own_code(self) -> dict[str, str]:
        """What trains or judges a network and is the user's, by setting."""
        kinds: dict[str, Kind] = {"loss": "losses", "metric": "metrics", "optimiser": "optimisers"}
        found = {"learning.model": self.model} if ":" in self.model else {}
        for key, kind in kinds.items():
            name = getattr(self, key)
            if name != "auto" and not is_built_in(kind, name):
                found[f"learning.{key}"] = target_of(kind, name) or name
        return found

    @field_validator("aggregation")
    @classmethod
    def _aggregation_is_known(cls, name: str) -> str:
        if name != "scheme" and target_of("aggregators", name) is None:
            raise ValueError(f"choose one of scheme, {names_of('aggregators')}")
        return name


class LiveConfig(Section):
    """A run on real devices. Seconds here are wall seconds. A run without this section takes the defaults."""

    start_with: Whole = Field(0, ge=0, le=10_000_000, description="devices that must have joined first; 0: fleet.devices")
    time_scale: Positive = Field(1.0, description="wall seconds per second of the run's clock; below 1 for emulated devices")
    heartbeat_s: Positive = Field(5.0, description="between two heartbeats of a device")
    offline_after_s: Positive = Field(20.0, description="a device not heard of for so long is asked no more")
    ask_timeout_s: Positive = Field(2.0, description="a device that does not answer within is asked no more until heard again")
    deadline_factor: Real = Field(2.0, ge=1, le=1000, description="a task is given up after its predicted time times this,")
    deadline_margin_s: Positive = Field(5.0, description="and this on top")
    late: Literal["mix", "refuse"] = Field("mix", description="the upload of a task that was given up")
    back_off_s: Positive = Field(1.0, description="a device whose tasks come to nothing is not asked for so long; it doubles")
    max_staleness: Whole = Field(1000, ge=0, le=10**12, description="an upload of an older model is refused")
    max_change: Positive = Field(2.0, description="largest ‖upload − model‖ over the larger of ‖model‖ and 1")
    clock_tolerance_s: Positive = Field(0.25, description="how far a reported time may be from the server's clock")
    quarantine_s: Positive = Field(3600.0, description="how long a device that failed a check is left out")
    flood_messages_per_s: Positive = Field(200.0, description="a device that sends more, beyond its tasks, is cut")
    flood_bytes_per_s: Positive = Field(1e6, description="the same in bytes")
    limits_from_fleet: list[Literal["max_time_s", "max_energy_j"]] | None = Field(
        None, description="limits of [objective] that boards settle by measuring themselves; unset: those that are not given"
    )
    influence_shares: Real = Field(3.0, ge=1, le=1e9, description="a device's uploads are clipped above so many fair shares")
    warn_after_s: Positive = Field(60.0, description="so long without an upload mixed in is warned of, and again every time")
    stop_after_s: Positive | None = Field(None, description="the run ends so long after it has started, whatever its rounds")
    stop_at_metric: Real | None = Field(None, description="the run ends when an evaluation reaches this metric")
    stop_without_progress: Whole | None = Field(
        None, ge=1, le=10**6, description="the run ends after so many evaluations in a row without a better metric"
    )
    replicas: Whole = Field(1, ge=1, le=5, description="copies of streams and buckets in a NATS cluster of your own")
    ledger: Literal["file", "stream"] = Field("file", description="kept in the run folder, or at a broker of your own as well")
    fsync: bool = Field(False, description="true: every write survives a loss of power, not only the end of a process")


class CodeConfig(Section):
    """Code of your own, named ``module:attribute``."""

    folder: str | None = Field(None, description="where it is looked for first; by default the folder of the TOML naming it")
    model_source: str | None = Field(None, description="digest of a model's source, by which a live fleet checks itself")
    sources: dict[str, str] = Field({}, description="the same of a loss, a metric and an optimiser, by setting")


class Config(Section):
    """One run, whole."""

    fleet: FleetConfig = FleetConfig()
    radio: RadioConfig = RadioConfig()
    compute: ComputeConfig = ComputeConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    world: WorldConfig = WorldConfig()
    twin: TwinConfig = TwinConfig()
    policy: PolicyConfig = PolicyConfig()
    run: RunConfig = RunConfig()
    learning: LearningConfig | None = None
    live: LiveConfig | None = None
    code: CodeConfig = CodeConfig()

    @property
    def own_code(self) -> dict[str, str]:
        """The settings that name code of the user's, with the names: ``{"policy.name": "mine:POLICY"}``."""
        found = {}
        for setting, kind in KIND_OF_PART.items():
            section, _, key = setting.partition(".")
            name = getattr(getattr(self, section), key)
            if not is_built_in(kind, name):
                found[setting] = target_of(kind, name) or name
        if self.learning is not None:
            found |= self.learning.own_code
        rule = self.learning.aggregation if self.learning is not None else "scheme"
        if rule != "scheme" and not is_built_in("aggregators", rule):
            found["learning.aggregation"] = target_of("aggregators", rule) or rule
        return found

    @model_validator(mode="after")
    def _evaluations_are_not_too_many(self) -> "Config":
        if self.learning is not None and self.learning.evaluate_every_s < 0.01 * self.objective.max_time_s:
            least = 0.01 * self.objective.max_time_s
            raise ValueError(f"learning.evaluate_every_s = {self.learning.evaluate_every_s:g} must be at least {least:g}")
        return self

    @property
    def averages(self) -> bool:
        """Whether the model that is served is an average."""
        how = "none" if self.learning is None else self.learning.average
        return how == "ema" or (how == "auto" and self.run.rounds >= AVERAGED_FROM_ROUNDS)

    @property
    def rounds_of_the_schedule(self) -> int:
        """After so many rounds the learning rate has fallen; a synchronous round makes M of the run's selections."""
        if self.learning is not None and self.learning.rate_rounds:
            return self.learning.rate_rounds
        if self.run.mode != "sync":
            return self.run.rounds
        return -(-self.run.rounds // min(self.fleet.channels, self.fleet.devices))

    @model_validator(mode="after")
    def _the_rate_rises_before_it_falls(self) -> "Config":
        if self.learning is not None and self.rounds_of_the_schedule <= self.learning.rate_warmup_rounds:
            raise ValueError(
                f"learning.rate_warmup_rounds = {self.learning.rate_warmup_rounds} must be below "
                f"{self.rounds_of_the_schedule}, the rounds of the rate's schedule"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _a_scheme_is_a_policy_and_a_mode(cls, data: Any) -> Any:
        policy, run = (data.get(key) or {} for key in ("policy", "run")) if isinstance(data, Mapping) else (None, None)
        if not isinstance(policy, Mapping) or not isinstance(run, Mapping) or not isinstance(policy.get("name"), str):
            return data
        scheme = find_scheme(policy["name"])
        if scheme is None:
            return data
        if run.get("mode", scheme.mode) != scheme.mode:
            raise ValueError(f"run.mode = {run['mode']!r} contradicts policy.name = {policy['name']!r}: it is {scheme.mode}")
        return {**data, "policy": {**policy, "name": scheme.policy}, "run": {**run, "mode": scheme.mode}}
