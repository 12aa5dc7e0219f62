"""Call `do_transition` of a role for the role-provided jig, with the role's code and its noderole's view."""

from rackwright.annealer.role_files import FilesMissing, RoleFiles
from rackwright.annealer.role_workers import CallFailed, RoleCall, RoleWorkers
from rackwright.domain.effects import outcome_from_json
from rackwright.domain.errors import Invalid
from rackwright.domain.hooks import DO_TRANSITION
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.role_provided import TransitionFailed
from rackwright.reach.run_log import Log
from rackwright.store.hooks.hook_views import read_noderole_view
from rackwright.store.store import Store


class RoleTransitions:
    """Calls `do_transition` of roles in worker processes."""

    def __init__(self, store: Store, workers: RoleWorkers, files: RoleFiles) -> None:
        self.store = store
        self.workers = workers
        self.files = files

    async def do_transition(self, run: Run, log: Log) -> Outcome:
        async with self.store.read() as session:
            stored = await session.catalogue()
            view = await read_noderole_view(session, run.node_role_id)
        role = stored.catalogue.roles.get(run.role)
        if role is None or view is None or DO_TRANSITION not in role.hooks:
            raise TransitionFailed(
                f"Its jig {run.jig!r} does what the role's class says, and there is none with do_transition. "
                "Add it to the barclamp's roles.py and import that."
            )
        try:
            folder = await self.files.folder(run.content, run.barclamp, run.role)
            call = RoleCall(str(folder), stored.version, run.role, DO_TRANSITION, {**view, "input": run.input})
            return outcome_from_json(await self.workers.call(call, run.deadline, log))
        except (CallFailed, FilesMissing, Invalid) as error:
            raise TransitionFailed(str(error)) from None
