"""The tables of runs: slots, the runs in them, and the logs of runs."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

from rackwright.domain.runs import ENDED, HOLDS_SLOT, RunState
from rackwright.store.db.tables.base import (
    flag_column,
    id_column,
    json_column,
    line_column,
    metadata,
    now_column,
    quoted,
    refers_to,
    time_column,
)

# One row for each slot, where one run at a time may be: a machine, or a noderole on a phantom node. `candidate_id` is
# the noderole that would run there next, null while none may: so the claim reads one short index, however many
# noderoles wait on busy nodes.
slots = Table(
    "slots",
    metadata,
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    refers_to("node_id", "nodes.id", index=True, ondelete="CASCADE"),
    refers_to("node_role_id", "node_roles.id", nullable=True, ondelete="CASCADE"),
    # No foreign key: it changes with every run, and the claim reads the noderole anyway.
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
    id_column(),
    # No foreign key: runs are history and outlive their noderole.
    Column("node_role_id", BigInteger, nullable=False, index=True),
    Column("node_id", BigInteger, nullable=False),
    Column("slot", BigInteger, nullable=False),
    Column("jig", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False, server_default=text("1")),
    flag_column("refresh"),
    Column("inputs_rev", BigInteger),
    json_column("staged"),
    Column("hash", LargeBinary),
    Column("worker", Text),
    time_column("lease_until"),
    Column("deadline", Double, nullable=False),
    now_column("queued_at"),
    time_column("not_before"),
    time_column("started_at"),
    time_column("ended_at"),
    line_column("error"),
    line_column("trace"),
    line_column("content"),
    CheckConstraint(f"state IN ({quoted(RunState)})", name="state"),
    CheckConstraint(f"(state IN ({quoted(ENDED)})) = (ended_at IS NOT NULL)", name="ended_at"),
    Index("runs_one_a_slot", "slot", unique=True, postgresql_where=text(f"state IN ({quoted(HOLDS_SLOT)})")),
    Index("runs_queue_idx", "queued_at", postgresql_where=text("state = 'queued'")),
    Index("runs_one_queued", "node_role_id", unique=True, postgresql_where=text("state = 'queued'")),
    postgresql_with={"fillfactor": "70"},
)

run_logs = Table(
    "run_logs",
    metadata,
    refers_to("run_id", "runs.id", ondelete="CASCADE"),
    Column("seq", Integer, nullable=False),
    now_column("at"),
    Column("text", Text, nullable=False),
    PrimaryKeyConstraint("run_id", "seq"),
)
