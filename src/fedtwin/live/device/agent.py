"""The device agent: joins a run, works for it, tells how it is, and joins the next."""

import asyncio
import logging
from contextlib import suppress

from pydantic import ValidationError

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.live.device import board
from fedtwin.live.device.calibration import Calibration, calibrate, trained_by, try_link
from fedtwin.live.device.delivery import PUBLISH_TIMEOUT_S, RETRY_S
from fedtwin.live.device.planner import AgentOptions, Planner
from fedtwin.live.device.sending import Sending
from fedtwin.live.device.trainers import TrainingError, prepared, require_sensing
from fedtwin.live.device.work import TaskWork
from fedtwin.live.logs import say
from fedtwin.live.wire.ports import Incoming, Subscription, Transport
from fedtwin.live.wire.protocol import FAREWELL, MOST_TENSORS, Hello, Normalised, Own, Subjects, Tried, Welcome, misfit
from fedtwin.live.wire.settings import taken_settings
from fedtwin.live.wire.tasks import unless_stopped
from fedtwin.live.wire.troubles import TROUBLES, words_of

CALL_JITTER_S = 0.3
STOP_S = 5.0

__all__ = ["Agent", "AgentOptions"]


def _settings_of(welcome: Welcome) -> Welcome:
    """What a device prepares for: what the run gathers comes later."""
    return welcome.model_copy(update={"normalisation": None})


class Agent:
    """One device of one run."""

    def __init__(self, options: AgentOptions) -> None:
        self._options, self._name, self._ports = options, options.name, options.ports
        self._subjects = Subjects(options.run)
        self._meter = board.EnergyMeter()
        self._samples = 0
        self._own: Own | None = None
        self._measured: Tried | None = None
        self._normalisation: Normalised | None = None
        self._run_has_none = False
        self._normalising = asyncio.Lock()
        self._planned_samples: int | None = None
        self._heartbeat_s = 5.0
        self._work: TaskWork | None = None
        self._sending: Sending | None = None
        self._stop, self._wake = asyncio.Event(), asyncio.Event()
        self._subscriptions: list[Subscription] = []
        self._welcome: Welcome | None = None
        self._other_run = self._unheard = self._parted = False
        self._transport: Transport

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()

    async def run(self) -> None:
        """Until ``stop``; a training that goes on then is finished and uploaded first, if that does not take long."""
        if not await self._connected():
            return
        try:
            while not self._stop.is_set() and await self._join():
                await self._beat_until_stopped()
            if self._work is not None:
                await self._work.finish(STOP_S)
        finally:
            self._options.trainer.stop()
            self._options.code.close()
            await self._transport.close()

    async def _connected(self) -> bool:
        """False if stopped meanwhile."""
        options = self._options
        connecting = self._ports.connect(
            options.servers,
            name=self._name,
            credentials=options.credentials,
            insecure=options.insecure,
            on_reconnect=self._came_back,
            expected=lambda: self._parted,
        )
        transport = await unless_stopped(connecting, self._stop)
        if transport is None:
            return False
        self._transport = transport
        return True

    # Joining

    async def _join(self) -> bool:
        """Asks for the settings, prepares the training, announces itself; again for another run. False if stopped meanwhile."""
        if self._work is not None:
            await unless_stopped(self._work.until_free(), self._stop)
        for subscription in self._subscriptions:
            await subscription.unsubscribe()
        self._subscriptions = []
        welcome = await self._hello(Hello())
        if welcome is None:
            return False
        self._welcome, self._other_run, self._unheard, self._parted = _settings_of(welcome), False, False, False
        self._normalisation, self._run_has_none, self._planned_samples = None, False, None
        config = await self._with_code(taken_settings(welcome.config))
        if config is None:
            return False
        emulated, devices = self._options.fleet_device, config.fleet.devices
        if emulated is not None and not welcome.fleet_is_drawn:
            raise FedtwinError(
                f"--emulate {emulated} is not possible: the run's fleet is in a file (fleet.file) that is not here."
            )
        if emulated is not None and emulated >= devices:
            raise FedtwinError(f"--emulate {emulated} is not allowed: the run's fleet has devices 0 to {devices - 1}.")
        self._heartbeat_s = welcome.heartbeat_s
        self._samples = await self._ports.in_a_thread(prepared, self._options.trainer, config)
        calibration = await self._calibrated(config)
        monotonic_s, scale = self._ports.clock.monotonic_s, welcome.time_scale
        planner = Planner(self._options, config, self._samples, self._meter, monotonic_s, calibration, scale)
        self._own, self._measured = planner.own, planner.measured
        if self._options.is_board and self._options.max_power_w is None:
            watts = config.radio.max_power_w
            say(logging.INFO, "upload energy is modelled with radio.max_power_w; --max-power-w says another", watts=watts)
        require_sensing(self._options.trainer, planner.own)
        identity, before = welcome.identity, self._sending
        self._sending = Sending(config, identity) if before is None else before.under(config, identity)
        self._work = TaskWork(
            self._transport,
            self._subjects,
            self._name,
            ports=self._ports,
            trainer=self._options.trainer,
            planner=planner,
            meter=self._meter,
            sending=self._sending,
            samples=self._samples,
            time_scale=welcome.time_scale,
            ready=self._require_normalisation,
        )
        self._subscriptions = [
            await self._transport.subscribe(self._subjects.ask(self._name), self._work.on_ask),
            await self._transport.subscribe(self._subjects.task(self._name), self._work.on_task),
            await self._transport.subscribe(self._subjects.call, self._on_call),
        ]
        welcome = await self._hello(self._introduction(fresh=True))
        if welcome is None:
            return False
        await self._take_normalisation(welcome)
        say(logging.INFO, "joined", device=self._name, run=self._options.run, samples=self._samples)
        return True

    async def _with_code(self, config: Config) -> Config | None:
        """With the source of the run's own model from the edge server, where it is not here and this device takes it."""
        config = config.model_copy(update={"code": config.code.model_copy(update={"folder": None})})
        rules, lacks_code = self._options.code, getattr(self._options.trainer, "lacks_code", None)
        if lacks_code is None:
            return config
        rules.check(config)
        if not rules.accept or not await self._ports.in_a_thread(lacks_code, config):
            return config
        welcome = await self._hello(Hello(code=True))
        return None if welcome is None else await self._ports.in_a_thread(rules.take, config, welcome.code)

    def _introduction(self, *, fresh: bool) -> Hello:
        measures = ["compute_s", "link_s"]
        if board.cpu_hz() is not None:
            measures.append("cpu_hz")
        if self._meter.readable:
            measures.append("compute_j")
        tensors = getattr(self._options.trainer, "tensors", None)
        if tensors is not None and len(tensors) > MOST_TENSORS:
            tensors = None
        return Hello(
            samples=self._samples,
            hardware=board.hardware(),
            measures=measures,
            fresh=fresh,
            tensors=tensors,
            own=self._own,
            measured=self._measured,
            moments=getattr(self._options.trainer, "moments", None) if self._normalisation is None else None,
        )

    async def _calibrated(self, config: Config) -> Calibration | None:
        """What a board knows of itself before it joins: from a file, else it measures."""
        options = self._options
        if not options.is_board:
            return None
        if (known := options.calibration) is not None:
            if known.fits(config) and known.goodput_bps is not None:
                return known
            if known.fits(config):
                goodput_bps = await try_link(self._transport, self._subjects.trial(self._name), self._ports.clock.monotonic_s)
                return known.model_copy(update={"goodput_bps": goodput_bps})
            trained = f"{known.trained}, and the run trains {trained_by(config)}"
            say(logging.WARNING, "the calibration is of another training, this board measures anew", it_is=trained)
        return await calibrate(
            self._transport,
            self._subjects.trial(self._name),
            self._ports,
            options.trainer,
            config,
            self._samples,
            name=self._name,
            cpu_hz=options.cpu_hz,
        )

    async def _hello(self, hello: Hello) -> Welcome | None:
        """Until the edge server answers; it may not be there yet. A refusal is final."""
        told = False
        subject = self._subjects.hello(self._name)
        while not self._stop.is_set():
            try:
                answer = await self._transport.request(subject, hello.encoded(), timeout_s=PUBLISH_TIMEOUT_S)
                welcome = Welcome.model_validate_json(answer)
            except TROUBLES:
                self._check_the_connection()
                if not told:
                    say(logging.INFO, "waiting for the edge server", device=self._name, run=self._options.run)
                    told = True
                await self._pause(RETRY_S)
                continue
            except ValidationError as error:
                raise FedtwinError(f"The edge server speaks another protocol: {misfit(error)}.") from None
            if not welcome.accepted:
                raise FedtwinError(f"The edge server refuses {self._name!r}: {welcome.reason}.")
            return welcome
        return None

    def _check_the_connection(self) -> None:
        if self._transport.closed:
            raise FedtwinError(f"The server closed the connection of {self._name!r} for good.")
        if self._transport.refused(self._subjects.hello(self._name)):
            if self._options.credentials is None:
                raise FedtwinError(f"The broker does not let {self._name!r} say hello to run {self._options.run!r}.")
            raise FedtwinError(f"--credentials: the broker lets them speak for another device or run, not as {self._name!r}.")

    async def _came_back(self) -> None:
        say(logging.INFO, "reconnected", device=self._name)
        await self._say_hello_again()

    async def _say_hello_again(self) -> None:
        """If the run is still the one we are prepared for: a new one has other settings, and is joined as one.

        Without an answer it is said again with the next heartbeat.
        """
        if not self._subscriptions:
            return
        self._unheard = True
        subject = self._subjects.hello(self._name)
        with suppress(*TROUBLES, ValidationError):
            answer = await self._transport.request(subject, Hello().encoded(), timeout_s=PUBLISH_TIMEOUT_S)
            welcome = Welcome.model_validate_json(answer)
            other = self._normalisation is not None and welcome.normalisation != self._normalisation
            if other or _settings_of(welcome) != self._welcome:
                say(logging.INFO, "the settings are others now", device=self._name, run=self._options.run)
                self._other_run = True
                self._wake.set()
                return
            self._run_has_none = False  # or no longer: it is asked again before the next training
            await self._transport.request(subject, self._introduction(fresh=False).encoded(), timeout_s=PUBLISH_TIMEOUT_S)
            self._unheard = self._parted = False

    # The run's normalisation, and samples that change

    async def _take_normalisation(self, welcome: Welcome) -> None:
        """Once: a task may come before the welcome does, and would train while the samples are normalised again."""
        normalise = getattr(self._options.trainer, "normalise", None)
        async with self._normalising:
            if welcome.normalisation is not None and normalise is not None and welcome.normalisation != self._normalisation:
                await self._ports.in_a_thread(normalise, welcome.normalisation)
                self._normalisation = welcome.normalisation

    async def _require_normalisation(self) -> None:
        """Before the first training: the run gathers it when it starts, after this device has joined, and maybe from others."""
        trainer = self._options.trainer
        if self._normalisation is not None or self._run_has_none or getattr(trainer, "normalise", None) is None:
            return
        subject = self._subjects.hello(self._name)
        try:
            answer = await self._transport.request(subject, Hello().encoded(), timeout_s=PUBLISH_TIMEOUT_S)
            welcome = Welcome.model_validate_json(answer)
        except (*TROUBLES, ValidationError) as error:
            raise TrainingError(f"the run's normalisation is not known: {words_of(error)}") from None
        if welcome.normalisation is None and getattr(trainer, "moments", None) is not None:
            raise TrainingError("the run has no normalisation")
        self._run_has_none = welcome.normalisation is None
        await self._take_normalisation(welcome)

    async def _look_at_the_samples(self) -> None:
        """Samples that grow or shrink are announced between two tasks; until that is answered no round is taken."""
        trainer, work = self._options.trainer, self._work
        if work is None or not hasattr(trainer, "refreshed"):
            return
        if self._planned_samples is None:
            try:
                self._planned_samples = await self._ports.in_a_thread(getattr(trainer, "refreshed"))  # noqa: B009
            except FedtwinError as error:
                say(logging.WARNING, "the samples that have changed are not used", device=self._name, reason=str(error))
        planned = self._planned_samples
        if planned is None:
            return
        work.paused = True
        if not work.is_free:
            return
        if planned != self._samples:
            hello = self._introduction(fresh=False).model_copy(update={"samples": planned})
            with suppress(*TROUBLES, ValidationError):
                answer = await self._transport.request(
                    self._subjects.hello(self._name), hello.encoded(), timeout_s=PUBLISH_TIMEOUT_S
                )
                if Welcome.model_validate_json(answer).accepted:
                    say(logging.INFO, "other samples", device=self._name, samples=planned, before=self._samples)
                    self._samples = planned
        if planned == self._samples:
            await self._ports.in_a_thread(getattr(trainer, "take_refreshed"))  # noqa: B009
            work.resize(planned)
            work.paused, self._planned_samples = False, None

    async def _on_call(self, message: Incoming) -> None:
        """The edge server was started again and wants to hear everybody, not all at once; or it ends and says so."""
        if message.data == FAREWELL:
            say(logging.INFO, "the edge server has ended", device=self._name, run=self._options.run)
            self._parted = True
            return
        await asyncio.sleep(self._ports.chance.uniform(0.0, CALL_JITTER_S))
        await self._say_hello_again()

    async def _beat_until_stopped(self) -> None:
        """Or until the run is another one."""
        assert self._work is not None
        while not self._stop.is_set() and not self._other_run:
            self._check_the_connection()
            with suppress(*TROUBLES):
                await self._transport.publish(self._subjects.beat(self._name), self._work.telemetry().encoded())
            if self._unheard:
                await unless_stopped(self._say_hello_again(), self._stop)
            await self._look_at_the_samples()
            await self._pause(self._heartbeat_s)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), timeout=seconds)
        if not self._stop.is_set():
            self._wake.clear()
