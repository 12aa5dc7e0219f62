"""Every table, with the constraints that make wrong states impossible. Queries live beside their aggregate.

Tables are named like the collections of the API. Hot tables leave room in their pages (fillfactor) because each of
their rows is updated several times.
"""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, MACADDR, UUID
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.types import UserDefinedType

from rackwright.domain.catalogue import EXCLUDES, Flag
from rackwright.domain.machines.install import ENDED as STAGES_ENDED
from rackwright.domain.machines.install import Stage
from rackwright.domain.machines.power import Sleep
from rackwright.domain.runs import ENDED, HOLDS_SLOT, RunState
from rackwright.domain.states import BLOCKED, PROPOSED, TODO, TRANSITION, NodeRoleState

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    }
)


class XID8(UserDefinedType[str]):
    """PostgreSQL's 64-bit transaction id."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "xid8"


ischema_names["xid8"] = XID8  # so that the schema of a database can be compared with this file


def _id() -> Column[int]:
    return Column("id", BigInteger, Identity(), primary_key=True)


def _json(name: str, nullable: bool = False) -> Column[Any]:
    return Column(name, JSONB, nullable=nullable, server_default=None if nullable else text("'{}'"))


def _words(name: str) -> Column[Any]:
    return Column(name, ARRAY(Text), nullable=False, server_default=text("'{}'"))


def _flag(name: str, default: bool = False) -> Column[bool]:
    return Column(name, Boolean, nullable=False, server_default=text(str(default).lower()))


def _line(name: str) -> Column[str]:
    return Column(name, Text, nullable=False, server_default=text("''"))


def _now(name: str) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=False, server_default=text("now()"))


def _refers(
    name: str, to: str, *, nullable: bool = False, index: bool = False, ondelete: str | None = None
) -> Column[int]:
    return Column(name, BigInteger, ForeignKey(to, ondelete=ondelete), nullable=nullable, index=index)


def _quoted(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


# --- the catalogue

barclamps = Table(
    "barclamps",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    _line("display"),
    _line("description"),
    _line("version"),
    Column("parent", Text),
    _line("path"),
    _line("digest"),
    _now("imported_at"),
)

# The files of barclamps, by the digest that `barclamps` and `runs` name. Not a foreign key: runs are history.
contents = Table(
    "contents",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("archive", LargeBinary, nullable=False),
    _now("used_at"),
)

jigs = Table(
    "jigs",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    _refers("barclamp_id", "barclamps.id", index=True, ondelete="CASCADE"),
    Column("kind", Text, nullable=False),
    _line("description"),
    _flag("active", True),
    Column("client_role", Text),
)

hammers = Table(
    "hammers",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    _refers("barclamp_id", "barclamps.id", index=True, ondelete="CASCADE"),
    Column("kind", Text, nullable=False),
    Column("priority", Integer, nullable=False, server_default=text("0")),
    _line("description"),
)


roles = Table(
    "roles",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    _refers("barclamp_id", "barclamps.id", index=True, ondelete="CASCADE"),
    Column("jig", Text, nullable=False),
    _line("description"),
    _words("requires"),
    _words("attaches"),
    _words("wants"),
    _words("provides"),
    _words("conflicts"),
    _words("flags"),
    _words("hooks"),
    _json("template"),
    Column("deadline", Double),
    Column("destructive", Boolean, Computed("'destructive' = ANY (flags)", persisted=True), nullable=False),
    Column("cluster", Boolean, Computed("'cluster' = ANY (flags)", persisted=True), nullable=False),
    CheckConstraint(f"flags <@ ARRAY[{_quoted(Flag)}]", name="known_flags"),
    *(
        CheckConstraint(f"NOT flags @> ARRAY['{one}', '{other}']", name=f"{one}_excludes_{other}")
        for one, other in EXCLUDES
    ),
)

attribs = Table(
    "attribs",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    _refers("barclamp_id", "barclamps.id", index=True, ondelete="CASCADE"),
    _refers("role_id", "roles.id", nullable=True, index=True, ondelete="CASCADE"),
    Column("map", ARRAY(Text), nullable=False),
    _line("description"),
    _json("schema", nullable=True),
    _json("default", nullable=True),
    _flag("has_default"),
    _flag("secret"),
    CheckConstraint("cardinality(map) > 0", name="map"),
)

# --- machines

nodes = Table(
    "nodes",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    _line("description"),
    _flag("admin"),
    _flag("system"),
    _flag("alive"),
    _flag("available"),
    _line("bootenv"),
    _line("observed_bootenv"),
    Column("boot_id", Text),
    Column(
        "deployment_id",
        BigInteger,
        ForeignKey(
            "deployments.id", deferrable=True, initially="DEFERRED", use_alter=True, name="nodes_deployment_id_fkey"
        ),
        nullable=False,
        index=True,
    ),
    Column("uuid", UUID(as_uuid=False), unique=True),
    Column("key", Text, unique=True),
    _json("discovery"),
    _json("hint"),
    _words("quirks"),
    _flag("stay_on"),
    Column("boot_generation", BigInteger, nullable=False, server_default=text("0")),
    Column("token_hash", LargeBinary, unique=True),
    Column("host_key", Text),
    Column("approved_address", Text),
    _flag("trust_first_key"),
    Column("offered_host_key", Text),
    Column("shutdown_at", DateTime(timezone=True)),
    Column("seen_at", DateTime(timezone=True)),
    # Set while a machine that came by itself was never accepted; only such a node is ever deleted by a clock.
    Column("waiting_since", DateTime(timezone=True)),
    Column("registered_from", Text),
    # Which system said it, by key of `discovery`: it replaces just that the next time.
    _json("reported_by"),
    # Whether somebody who may accept machines agreed that the machine with these MACs and this UUID is this node.
    _flag("identity_confirmed", default=True),
    Column("offered_key", Text),
    Column("offered_from", Text),
    Column("offered_at", DateTime(timezone=True)),
    _words("past_boot_ids"),
    Column("sleep", Text),
    Column("power_until", DateTime(timezone=True)),
    _now("created_at"),
    CheckConstraint(f"sleep IN ({_quoted(Sleep)})", name="sleep"),
    CheckConstraint("name = lower(name)", name="name_is_lower_case"),
    CheckConstraint("NOT system OR (alive AND available AND NOT admin)", name="phantom_is_always_there"),
    CheckConstraint("waiting_since IS NULL OR NOT (available OR system OR admin)", name="who_waits_is_not_let_in"),
    Index("nodes_waiting_idx", "registered_from", postgresql_where=text("waiting_since IS NOT NULL")),
    Index("nodes_registered_address", text("(discovery ->> 'address')")),
    Index("nodes_hinted_address", text("(hint ->> 'address')")),
    Index("nodes_host_key", "host_key"),
)

node_macs = Table(
    "node_macs",
    metadata,
    Column("mac", MACADDR, primary_key=True),
    _refers("node_id", "nodes.id", index=True, ondelete="CASCADE"),
)

groups = Table(
    "groups",
    metadata,
    _id(),
    Column("category", Text, nullable=False),
    Column("name", Text, nullable=False),
    _line("description"),
    UniqueConstraint("category", "name"),
)

node_groups = Table(
    "node_groups",
    metadata,
    _refers("node_id", "nodes.id", ondelete="CASCADE"),
    _refers("group_id", "groups.id", index=True, ondelete="CASCADE"),
    PrimaryKeyConstraint("node_id", "group_id"),
)

# --- intent

deployments = Table(
    "deployments",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    _line("description"),
    _refers("parent_id", "deployments.id", nullable=True, index=True),
    Column(
        "phantom_id",
        BigInteger,
        ForeignKey("nodes.id", deferrable=True, initially="DEFERRED"),
        nullable=False,
        unique=True,
    ),
    _flag("held"),
    _flag("upgrade_due"),
    _now("created_at"),
    Index("deployments_one_root", text("(true)"), unique=True, postgresql_where=text("parent_id IS NULL")),
    CheckConstraint("parent_id <> id", name="not_its_own_parent"),
)

# Under which names nodes are served by DNS, and whose nodes.
domains = Table(
    "domains",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    _refers("deployment_id", "deployments.id", index=True, ondelete="CASCADE"),
    _now("created_at"),
    CheckConstraint("name = lower(name)", name="name_is_lower_case"),
)

snapshots = Table(
    "snapshots",
    metadata,
    _id(),
    _refers("deployment_id", "deployments.id", index=True, ondelete="CASCADE"),
    Column("state", Text, nullable=False),
    Column("base_id", BigInteger),
    Column("revision", BigInteger, nullable=False, server_default=text("0")),
    Column("worked_out_at", BigInteger),
    _line("comment"),
    _now("created_at"),
    Column("committed_at", DateTime(timezone=True)),
    CheckConstraint("state IN ('proposed', 'head', 'archived')", name="state"),
    CheckConstraint("(state = 'proposed') = (committed_at IS NULL)", name="committed_at"),
    Index("snapshots_one_proposed", "deployment_id", unique=True, postgresql_where=text("state = 'proposed'")),
    Index("snapshots_one_head", "deployment_id", unique=True, postgresql_where=text("state = 'head'")),
)

snapshot_roles = Table(
    "snapshot_roles",
    metadata,
    _refers("snapshot_id", "snapshots.id", ondelete="CASCADE"),
    Column("role_id", BigInteger, nullable=False),
    Column("role_name", Text, nullable=False),
    _json("data"),
    PrimaryKeyConstraint("snapshot_id", "role_id"),
)

# No foreign key to nodes and roles: an archived snapshot outlives them, and says what cannot be restored.
snapshot_bindings = Table(
    "snapshot_bindings",
    metadata,
    _refers("snapshot_id", "snapshots.id", ondelete="CASCADE"),
    Column("node_id", BigInteger, nullable=False),
    Column("role_id", BigInteger, nullable=False),
    Column("node_name", Text, nullable=False),
    Column("role_name", Text, nullable=False),
    _flag("asked"),
    _json("data"),
    PrimaryKeyConstraint("snapshot_id", "node_id", "role_id"),
)

deployment_roles = Table(
    "deployment_roles",
    metadata,
    _id(),
    _refers("deployment_id", "deployments.id", ondelete="CASCADE"),
    _refers("role_id", "roles.id", index=True),
    _json("wall"),
    _json("data"),
    UniqueConstraint("deployment_id", "role_id"),
)

# --- the graph

_STATES = ", ".join(str(int(state)) for state in NodeRoleState)

node_roles = Table(
    "node_roles",
    metadata,
    _id(),
    _refers("node_id", "nodes.id"),
    _refers("role_id", "roles.id", index=True),
    _refers("deployment_id", "deployments.id"),
    Column("state", SmallInteger, nullable=False),
    Column("cohort", Integer, nullable=False, server_default=text("0")),
    Column("unmet", Integer, nullable=False, server_default=text("0")),
    Column("inputs_rev", BigInteger, nullable=False, server_default=text("0")),
    Column("run_id", BigInteger),
    _flag("forced"),
    _flag("doomed"),
    Column("retry_at", DateTime(timezone=True)),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("dirtied_by", BigInteger),
    Column("dirtied_times", Integer, nullable=False, server_default=text("0")),
    Column("dirtied_since", DateTime(timezone=True)),
    Column("hash", LargeBinary),
    _line("error"),
    _json("user_data"),
    _json("wall"),
    _json("sysdata"),
    Column(
        "has_data",
        Boolean,
        Computed("wall <> '{}' OR sysdata <> '{}' OR user_data <> '{}'", persisted=True),
        nullable=False,
    ),
    # Of the request that last moved it or changed its inputs: a trigger keeps it, its runs and their events take it on.
    Column("trace", Text, server_default=text("current_setting('rackwright.trace', true)")),
    UniqueConstraint("node_id", "role_id"),
    Index("node_roles_place_idx", "deployment_id", "role_id", "cohort", "id"),
    # No index may mention `state`, not even in its condition: so that a change of state stays within its page.
    Index("node_roles_turn_idx", "node_id", "cohort", "id"),
    Index("node_roles_data_idx", "node_id", "cohort", postgresql_where=text("has_data")),
    Index("node_roles_retry_idx", "retry_at", postgresql_where=text("retry_at IS NOT NULL")),
    CheckConstraint(f"state IN ({_STATES})", name="state"),
    CheckConstraint("unmet >= 0", name="unmet"),
    CheckConstraint(f"state <> {int(TODO)} OR unmet = 0", name="todo_means_all_parents_active"),
    CheckConstraint(f"state <> {int(BLOCKED)} OR unmet > 0", name="blocked_means_some_parent_is_not"),
    CheckConstraint(f"(state = {int(TRANSITION)}) = (run_id IS NOT NULL)", name="transition_means_a_run"),
    CheckConstraint(f"state <> {int(PROPOSED)} OR hash IS NULL", name="proposed_never_ran"),
    postgresql_with={"fillfactor": "70"},
)

node_role_edges = Table(
    "node_role_edges",
    metadata,
    _refers("parent_id", "node_roles.id", ondelete="CASCADE"),
    _refers("child_id", "node_roles.id", ondelete="CASCADE"),
    PrimaryKeyConstraint("parent_id", "child_id"),
    Index("node_role_edges_child_idx", "child_id", "parent_id"),
    CheckConstraint("parent_id <> child_id", name="no_loop"),
)

node_role_links = Table(
    "node_role_links",
    metadata,
    _refers("child_id", "node_roles.id", ondelete="CASCADE"),
    _refers("attrib_id", "attribs.id", index=True),
    _refers("parent_id", "node_roles.id", index=True, ondelete="CASCADE"),
    PrimaryKeyConstraint("child_id", "attrib_id"),
)

graph = Table(
    "graph",
    metadata,
    Column("single", Boolean, primary_key=True, server_default=text("true")),
    Column("version", BigInteger, nullable=False, server_default=text("0")),
    Column("catalogue_version", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("single", name="single"),
)

# --- work

# One row a place where one run at a time may be: a machine, or a noderole on a phantom node. `candidate_id` is what
# would run there next, null while nothing may: so the claim reads one short index, however much waits on busy nodes.
slots = Table(
    "slots",
    metadata,
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    _refers("node_id", "nodes.id", index=True, ondelete="CASCADE"),
    _refers("node_role_id", "node_roles.id", nullable=True, ondelete="CASCADE"),
    # No foreign key: it changes with every run, and the claim looks the noderole up anyway.
    Column("candidate_id", BigInteger),
    Column("cohort", Integer),
    Index("slots_node_role_id_idx", "node_role_id", postgresql_where=text("node_role_id IS NOT NULL")),
    Index("slots_candidate_idx", "cohort", "candidate_id", postgresql_where=text("candidate_id IS NOT NULL")),
    CheckConstraint("slot = coalesce(-node_role_id, node_id)", name="slot"),
    postgresql_with={"fillfactor": "50"},
)

runs = Table(
    "runs",
    metadata,
    _id(),
    # No foreign key: runs are history and outlive their noderole.
    Column("node_role_id", BigInteger, nullable=False, index=True),
    Column("node_id", BigInteger, nullable=False),
    Column("slot", BigInteger, nullable=False),
    Column("jig", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False, server_default=text("1")),
    _flag("refresh"),
    Column("inputs_rev", BigInteger),
    _json("staged"),
    Column("hash", LargeBinary),
    Column("worker", Text),
    Column("lease_until", DateTime(timezone=True)),
    Column("deadline", Double, nullable=False),
    _now("queued_at"),
    Column("not_before", DateTime(timezone=True)),
    Column("started_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True)),
    _line("error"),
    _line("trace"),
    _line("content"),
    CheckConstraint(f"state IN ({_quoted(RunState)})", name="state"),
    CheckConstraint(f"(state IN ({_quoted(ENDED)})) = (ended_at IS NOT NULL)", name="ended_at"),
    Index("runs_one_a_slot", "slot", unique=True, postgresql_where=text(f"state IN ({_quoted(HOLDS_SLOT)})")),
    Index("runs_queue_idx", "queued_at", postgresql_where=text("state = 'queued'")),
    Index("runs_one_queued", "node_role_id", unique=True, postgresql_where=text("state = 'queued'")),
    postgresql_with={"fillfactor": "70"},
)

run_logs = Table(
    "run_logs",
    metadata,
    _refers("run_id", "runs.id", ondelete="CASCADE"),
    Column("seq", Integer, nullable=False),
    _now("at"),
    Column("text", Text, nullable=False),
    PrimaryKeyConstraint("run_id", "seq"),
)

# Calls of hooks and of jigs' node methods that are still to be made, and those that were given up. What is done goes.
# A call that `blocks` keeps work from starting on its node and among the children of its noderole.
# The last state of what is gone, once for all who are told of it.
hook_views = Table("hook_views", metadata, _id(), Column("view", JSONB, nullable=False))

hook_calls = Table(
    "hook_calls",
    metadata,
    _id(),
    Column("kind", Text, nullable=False),
    Column("handler", Text, nullable=False),
    Column("hook", Text, nullable=False),
    # No foreign keys: what a call is about may be gone, and the call is made all the same.
    Column("subject", Text, nullable=False),
    Column("subject_id", BigInteger, nullable=False),
    Column("node_id", BigInteger),
    _flag("blocks"),
    _json("view"),
    Column("view_id", BigInteger, ForeignKey("hook_views.id")),
    Column("state", Text, nullable=False, server_default=text("'waiting'")),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("not_before", DateTime(timezone=True)),
    Column("worker", Text),
    Column("lease_until", DateTime(timezone=True)),
    _line("error"),
    _now("queued_at"),
    Column("trace", Text, server_default=text("current_setting('rackwright.trace', true)")),
    CheckConstraint("kind IN ('role', 'jig')", name="kind"),
    CheckConstraint("subject IN ('node', 'noderole', 'deployment', 'network', 'allocation')", name="subject"),
    CheckConstraint("state IN ('waiting', 'running', 'failed')", name="state"),
    CheckConstraint("NOT (blocks AND state = 'failed')", name="given_up_blocks_nothing"),
    CheckConstraint("NOT blocks OR subject = 'noderole'", name="only_noderole_hooks_block"),
    Index("hook_calls_order_idx", "subject_id", "subject", "handler", "id"),
    Index("hook_calls_queue_idx", "id", postgresql_where=text("state <> 'failed'")),
    Index("hook_calls_view_idx", "view_id", postgresql_where=text("view_id IS NOT NULL")),
    Index("hook_calls_blocks_node_idx", "node_id", postgresql_where=text("blocks")),
    Index("hook_calls_blocks_node_role_idx", "subject_id", postgresql_where=text("blocks")),
    postgresql_with={"fillfactor": "70"},
)

# --- installs

# One row: what boot providers should serve, counted. Whoever changes what a node boots takes the next number under the
# row's lock, so that numbers appear in the order of commits and "served up to N" leaves nothing below N out.
boot_state = Table(
    "boot_state",
    metadata,
    Column("single", Boolean, primary_key=True, server_default=text("true")),
    Column("generation", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("single", name="single"),
)

# What each provider serves now. Not in its noderole's wall: that is an input of whatever stands on it.
boot_providers = Table(
    "boot_providers",
    metadata,
    Column("node_role_id", BigInteger, ForeignKey("node_roles.id", ondelete="CASCADE"), primary_key=True),
    Column("generation", BigInteger, nullable=False),
    _now("published_at"),
)

install_attempts = Table(
    "install_attempts",
    metadata,
    _id(),
    _refers("node_id", "nodes.id", index=True, ondelete="CASCADE"),
    Column("node_role_id", BigInteger, nullable=False),
    Column("run_id", BigInteger, nullable=False, unique=True),
    Column("stage", Text, nullable=False),
    Column("target_os", Text, nullable=False),
    _json("frozen"),
    Column("generation", BigInteger),
    Column("secret_hash", LargeBinary, unique=True),
    Column("source", Text),
    Column("boot_id", Text),
    Column("installer_boot_id", Text),
    _json("progress"),
    _line("error"),
    Column("acting_until", DateTime(timezone=True)),
    Column("resetting_until", DateTime(timezone=True)),
    Column("rebooted_at", DateTime(timezone=True)),
    _now("created_at"),
    Column("ended_at", DateTime(timezone=True)),
    CheckConstraint(f"stage IN ({_quoted(Stage)})", name="stage"),
    CheckConstraint(f"(stage IN ({_quoted(STAGES_ENDED)})) = (ended_at IS NOT NULL)", name="ended_at"),
    Index("install_attempts_one_a_node", "node_id", unique=True, postgresql_where=text("ended_at IS NULL")),
)

# --- what happened

events = Table(
    "events",
    metadata,
    Column("xid", XID8, nullable=False, server_default=text("pg_current_xact_id()")),
    Column("id", BigInteger, Identity(), nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject_id", BigInteger),
    Column("node_id", BigInteger),
    Column("deployment_id", BigInteger),
    _json("data", nullable=True),
    Column("actor", Text, server_default=text("current_setting('rackwright.actor', true)")),
    Column("trace", Text, server_default=text("current_setting('rackwright.trace', true)")),
    _now("at"),
    PrimaryKeyConstraint("xid", "id"),
)

# --- registration

# What machines used up; each is forgotten when it would not hold any more.
spent_challenges = Table(
    "spent_challenges",
    metadata,
    Column("challenge", LargeBinary, primary_key=True),
    Column("ends_at", DateTime(timezone=True), nullable=False, index=True),
)

# --- settings

settings = Table(
    "settings",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", JSONB, nullable=False),
)

# Tables of their own topics. Imported here, at the end, because they use what is above.
from rackwright.store.db import idempotency_tables, network_tables, people_tables  # noqa: E402, F401
