"""The agent of a server: builds all its parts, gives each the ports it uses, starts them, and ends them.

It has no rules of its own. The state machine decides (`mesh/membership/swim.py`), the driver carries that out
(`membership_driver.py`), the handlers answer (`handlers.py`); no other module of the mesh imports this one.
"""

import asyncio
import contextlib
import fcntl
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from rackwright.mesh import agent_settings, metrics
from rackwright.mesh.agent.admission_handler import AdmissionHandler, AdmissionPorts
from rackwright.mesh.agent.control_server import ControlServer
from rackwright.mesh.agent.handlers import ControlHandlerPorts, ControlHandlers
from rackwright.mesh.agent.membership_driver import DriverPorts, MembershipDriver, new_machine
from rackwright.mesh.agent.revocation_spread import RevocationSpread, SpreadPorts
from rackwright.mesh.agent.seeds import SeedPorts, Seeds
from rackwright.mesh.datastore.conductor import Conductor, ConductorPorts
from rackwright.mesh.datastore.local_datastore import Datastore, DatastorePorts
from rackwright.mesh.errors import BadSettings
from rackwright.mesh.health.own_health import OwnHealth
from rackwright.mesh.identity.authority import Authority, AuthorityFiles
from rackwright.mesh.identity.revocation import RevocationFile
from rackwright.mesh.identity.server_identity import IdentityFiles, OwnIdentity
from rackwright.mesh.identity.signed_statements import Statements
from rackwright.mesh.joining.admission import Admission
from rackwright.mesh.joining.renewal import Renewal, RenewalPorts
from rackwright.mesh.log import Log
from rackwright.mesh.membership.member_view import live_records
from rackwright.mesh.metrics import Metrics
from rackwright.mesh.refusals import Refusals
from rackwright.mesh.runs.engine_pool import EnginePool
from rackwright.mesh.runs.record_verifier import RecordVerifier
from rackwright.mesh.runs.repositories import RepositoryPorts, RepositoryWatcher
from rackwright.mesh.runs.run_handlers import RunHandlerPorts, RunHandlers
from rackwright.mesh.runs.run_monitor import RunMonitor, RunMonitorPorts
from rackwright.mesh.runs.run_start import RunStart, RunStartPorts
from rackwright.mesh.runs.run_store import RunStore
from rackwright.mesh.runs.run_trust import RunTrust
from rackwright.mesh.runs.tasks import TaskPorts, TaskRunner
from rackwright.mesh.supervision import Supervisor, Work
from rackwright.mesh.transport.link import Kind
from rackwright.mesh.transport.tls import Contexts

LEAVE_SECONDS = 3.0


class Agent:
    """An agent with its files in `folder`."""

    def __init__(self, folder: Path, write_log: Callable[[str], object] | None = None) -> None:
        self._folder = folder
        self._settings = agent_settings.load(folder)
        files = IdentityFiles(folder)
        self._identity = OwnIdentity(files)
        self._name = self._settings.name
        if self._identity.current.name != self._name:
            certified_name = self._identity.current.name
            raise BadSettings(f"agent.yml says {self._name}, but the certificate in {folder} is {certified_name}'s")
        self._log = Log(self._name, write_log)
        self._metrics = Metrics()
        self._refusals = Refusals(self._log, self._metrics)
        self._parts = Supervisor(self._log, self._metrics)
        self._authority = self._open_authority()
        self._revocations = RevocationFile(folder / "revocations.json", self._identity.current.ca)
        self._swim = new_machine(self._settings, folder, holds_ca=self._authority is not None)
        self._contexts = Contexts(files)
        self._ending = asyncio.Event()
        self._driver = self._build_driver()
        self._health = OwnHealth(self._settings.checks, self._failing_parts, self._driver.publish_health, self._metrics)
        self._seeds = self._build_seeds()
        self._datastore = self._build_datastore()
        self._store = self._build_store()
        self._conductor = self._build_conductor()
        self._run_monitor = self._build_run_monitor()
        self._trust = RunTrust(self._name, folder, self._identity, self._store.etcd, self._refusals, self._log)
        self._engines = EnginePool(folder / "runs.log", folder / "engines")
        self._tasks = self._build_tasks()
        self._run_start = self._build_run_start()
        self._repositories = self._build_repositories()
        self._spread = self._build_spread()
        self._renewal = self._build_renewal()
        ssh_key = folder / "ssh_key"
        admission = self._build_admission(ssh_key)
        handlers = self._build_handlers(admission, ssh_key)
        self._control = ControlServer(folder, handlers.handle)
        self._connect(handlers, admission)

    # Start and stop

    async def run(self) -> None:
        """Run until a signal or the request `leave` ends the agent, then leave the cluster."""
        with self._lock_folder():
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._ending.set)
            await self._start()
            try:
                async with self._health.runner:
                    await self._ending.wait()
            finally:
                await self._stop()

    async def _start(self) -> None:
        expires = self._identity.current.expires
        if expires <= datetime.now(UTC):
            self._log.error("certificate_expired", way_out="ask for a new invite or token, then: mesh join --again")
        bound = await self._driver.transport.start(self._settings.bind)
        await self._control.start()
        for name in self._revocations.current.names:
            self._driver.remove(name)
        self._driver.joined()
        for part, work in self._background_work().items():
            self._parts.keep(part, work)
        if self._settings.metrics:
            await metrics.serve(self._metrics, self._settings.metrics)
        self._metrics.certificate.set(expires.timestamp())
        self._metrics.revocations.set(self._revocations.current.version)
        self._log.info("started", address=str(bound), session=self._swim.me.session, expires=expires.isoformat())

    def _background_work(self) -> dict[str, Work]:
        """Return the work that runs as long as the agent does, by the name of its part."""
        return {
            "seek": self._seeds.seek,
            "peers": self._seeds.save_changes,
            "certificate": self._renewal.run,
            "revocations": self._spread.run,
            "datastore": self._datastore.run,
            "snapshots": self._datastore.keep_snapshots,
            "conductor": self._conductor.run,
            "tasks": self._tasks.run,
            "overseer": self._run_monitor.run,
            "repositories": self._repositories.run,
        }

    async def _stop(self) -> None:
        self._seeds.save()
        await self._driver.leave(LEAVE_SECONDS)
        await self._parts.stop()
        await self._datastore.close()
        await self._control.stop()
        await self._driver.transport.stop()
        self._log.info("ended")

    @contextlib.contextmanager
    def _lock_folder(self) -> Iterator[None]:
        with (self._folder / "agent.lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as problem:
                raise BadSettings(f"another agent already runs from {self._folder}") from problem
            yield

    def _failing_parts(self) -> dict[str, str]:
        """Return the parts of this agent that failed a short while ago, each with the reason."""
        return {**self._driver.transport.parts.failing(), **self._parts.failing()}

    # The parts, each after those that it needs

    def _open_authority(self) -> Authority | None:
        files = AuthorityFiles(self._folder, self._settings.ca_passphrase_file)
        return files.open(self._settings.certificate_life) if files.exist() else None

    def _build_driver(self) -> MembershipDriver:
        ports = DriverPorts(
            name=self._name,
            advertise=self._settings.advertise,
            contexts=self._contexts,
            revocations=self._revocations,
            refusals=self._refusals,
            spawner=self._parts,
            metrics=self._metrics,
            log=self._log,
        )
        return MembershipDriver(self._swim, ports)

    def _build_seeds(self) -> Seeds:
        ports = SeedPorts(
            name=self._name,
            folder=self._folder,
            advertise=self._settings.advertise,
            seeds=self._settings.seeds,
            driver=self._driver,
            log=self._log,
        )
        return Seeds(ports)

    def _build_datastore(self) -> Datastore:
        ports = DatastorePorts(
            name=self._name,
            folder=self._folder,
            config=self._settings.datastore,
            advertise=self._settings.advertise,
            bind=self._settings.bind,
            tls=self._contexts.client,
            identity=self._identity,
            members=self._swim,
            linked=self._driver.linked,
            revocations=self._revocations,
            announce=self._driver.publish_datastore,
            spawner=self._parts,
            log=self._log,
        )
        return Datastore(ports)

    def _build_store(self) -> RunStore:
        statements = Statements(
            lambda: self._identity.current, lambda *certificate: self._revocations.current.covers(*certificate)
        )
        return RunStore(self._datastore.etcd, RecordVerifier(statements, self._refusals.refuse_record))

    def _build_conductor(self) -> Conductor:
        ports = ConductorPorts(
            name=self._name,
            datastore=self._datastore,
            store=self._store,
            members=self._swim,
            revocations=self._revocations,
            send_look=self._driver.send_look,
            spawner=self._parts,
            log=self._log,
        )
        return Conductor(ports)

    def _build_run_monitor(self) -> RunMonitor:
        ports = RunMonitorPorts(
            name=self._name,
            config=self._settings.datastore,
            store=self._store,
            is_voter=self._datastore.is_voter,
            members=self._swim,
            revocations=self._revocations,
            log=self._log,
        )
        return RunMonitor(ports)

    def _build_tasks(self) -> TaskRunner:
        ports = TaskPorts(
            name=self._name,
            folder=self._folder,
            store=self._store,
            trust=self._trust,
            engines=self._engines,
            identity=self._identity,
            members=self._swim,
            refusals=self._refusals,
            spawner=self._parts,
            log=self._log,
        )
        return TaskRunner(ports)

    def _build_run_start(self) -> RunStart:
        ports = RunStartPorts(
            name=self._name,
            folder=self._folder,
            store=self._store,
            trust=self._trust,
            engines=self._engines,
            members=self._swim,
            refusals=self._refusals,
            spawner=self._parts,
            log=self._log,
        )
        return RunStart(ports)

    def _build_repositories(self) -> RepositoryWatcher:
        ports = RepositoryPorts(
            name=self._name,
            folder=self._folder,
            config=self._settings.datastore,
            store=self._store,
            trust=self._trust,
            is_voter=self._datastore.is_voter,
            begin=self._run_start.begin,
            refusals=self._refusals,
            log=self._log,
        )
        return RepositoryWatcher(ports)

    def _build_spread(self) -> RevocationSpread:
        ports = SpreadPorts(
            name=self._name,
            identity=self._identity,
            authority=self._authority,
            revocations=self._revocations,
            transport=self._driver.transport,
            remove=self._driver.remove,
            changed=self._datastore.revocations_changed,
            end=self._ending.set,
            refusals=self._refusals,
            metrics=self._metrics,
            log=self._log,
        )
        return RevocationSpread(ports)

    def _build_renewal(self) -> Renewal:
        ports = RenewalPorts(
            name=self._name,
            advertise=self._settings.advertise,
            identity=self._identity,
            contexts=self._contexts,
            authority=self._authority,
            members=self._swim,
            metrics=self._metrics,
            log=self._log,
        )
        return Renewal(ports)

    def _build_admission(self, ssh_key: Path) -> AdmissionHandler:
        admission = None
        if self._authority:
            admission = Admission(
                self._authority,
                lambda: {record.name for record in live_records(self._swim)},
                self._spread.take_own,
                [ssh_key],
                self._log,
            )
        ports = AdmissionPorts(
            admission=admission,
            identity=self._identity,
            members=self._swim,
            tls=self._contexts.client,
            refusals=self._refusals,
        )
        return AdmissionHandler(ports)

    def _build_run_handlers(self) -> RunHandlers:
        ports = RunHandlerPorts(
            name=self._name,
            config=self._settings.datastore,
            store=self._store,
            start=self._run_start,
            trust=self._trust,
            repositories=self._repositories,
            authority=self._authority,
            members=self._swim,
            revocations=self._revocations,
            log=self._log,
        )
        return RunHandlers(ports)

    def _build_handlers(self, admission: AdmissionHandler, ssh_key: Path) -> ControlHandlers:
        ports = ControlHandlerPorts(
            name=self._name,
            advertise=self._settings.advertise,
            ssh_key=ssh_key,
            identity=self._identity,
            members=self._swim,
            revocations=self._revocations,
            admission=admission,
            datastore=self._datastore,
            conductor=self._conductor,
            runs=self._build_run_handlers(),
            metrics=self._metrics,
            count_links=self._driver.count_links,
            failing_parts=self._failing_parts,
            end=self._ending.set,
        )
        return ControlHandlers(ports)

    def _connect(self, handlers: ControlHandlers, admission: AdmissionHandler) -> None:
        """Connect the parts: handlers for the frames and HTTP requests of members, and subscribers to member events."""
        self._driver.handlers |= {
            Kind.REVOCATIONS_VERSION: self._spread.version_received,
            Kind.REVOCATIONS: self._spread.list_received,
            Kind.LOOK: lambda peer, payload: self._datastore.wake(),
        }
        self._driver.http_handler = admission.answer
        self._driver.subscribe(self._seeds.member_changed)
        self._driver.subscribe(handlers.member_changed)
