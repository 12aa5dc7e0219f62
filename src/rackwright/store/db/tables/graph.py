"""The tables of the graph: noderoles, the edges to their parents, and the links to where their attribs come from."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from rackwright.domain.states import BLOCKED, PROPOSED, TODO, TRANSITION, NodeRoleState
from rackwright.store.db.tables.base import (
    flag_column,
    id_column,
    json_column,
    line_column,
    metadata,
    number_column,
    refers_to,
    time_column,
)

_STATES = ", ".join(str(int(state)) for state in NodeRoleState)

node_roles = Table(
    "node_roles",
    metadata,
    id_column(),
    refers_to("node_id", "nodes.id"),
    refers_to("role_id", "roles.id", index=True),
    refers_to("deployment_id", "deployments.id"),
    Column("state", SmallInteger, nullable=False),
    number_column("cohort"),
    number_column("unmet"),
    Column("inputs_rev", BigInteger, nullable=False, server_default=text("0")),
    Column("run_id", BigInteger),
    flag_column("forced"),
    flag_column("doomed"),
    time_column("retry_at"),
    number_column("attempts"),
    Column("dirtied_by", BigInteger),
    number_column("dirtied_times"),
    time_column("dirtied_since"),
    Column("hash", LargeBinary),
    line_column("error"),
    json_column("user_data"),
    json_column("wall"),
    json_column("sysdata"),
    Column(
        "has_data",
        Boolean,
        Computed("wall <> '{}' OR sysdata <> '{}' OR user_data <> '{}'", persisted=True),
        nullable=False,
    ),
    # The trace of the request that last changed its state or inputs: a trigger sets it, its runs and events inherit it.
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
    refers_to("parent_id", "node_roles.id", ondelete="CASCADE"),
    refers_to("child_id", "node_roles.id", ondelete="CASCADE"),
    PrimaryKeyConstraint("parent_id", "child_id"),
    Index("node_role_edges_child_idx", "child_id", "parent_id"),
    CheckConstraint("parent_id <> child_id", name="no_loop"),
)

node_role_links = Table(
    "node_role_links",
    metadata,
    refers_to("child_id", "node_roles.id", ondelete="CASCADE"),
    refers_to("attrib_id", "attribs.id", index=True),
    refers_to("parent_id", "node_roles.id", index=True, ondelete="CASCADE"),
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
