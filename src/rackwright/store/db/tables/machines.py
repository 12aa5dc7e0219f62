"""The tables of machines: nodes with how they registered, their groups, what they boot, and their installs."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import MACADDR, UUID

from rackwright.domain.machines.install import ENDED as STAGES_ENDED
from rackwright.domain.machines.install import Stage
from rackwright.domain.machines.power import PowerOrder, Sleep
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
    words_column,
)

nodes = Table(
    "nodes",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    line_column("description"),
    flag_column("admin"),
    flag_column("system"),
    flag_column("alive"),
    flag_column("available"),
    line_column("bootenv"),
    line_column("observed_bootenv"),
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
    json_column("discovery"),
    json_column("hint"),
    words_column("quirks"),
    flag_column("stay_on"),
    Column("boot_generation", BigInteger, nullable=False, server_default=text("0")),
    Column("token_hash", LargeBinary, unique=True),
    Column("host_key", Text),
    Column("approved_address", Text),
    flag_column("trust_first_key"),
    Column("offered_host_key", Text),
    time_column("shutdown_at"),
    time_column("seen_at"),
    # Set while a machine that registered by itself was never accepted; only such a node is ever deleted for its age.
    time_column("waiting_since"),
    Column("registered_from", Text),
    # By key of `discovery`, the system that reported it: the next report of that system replaces just those keys.
    json_column("reported_by"),
    # Whether a person who may accept machines agreed that the machine with these MACs and this UUID is this node.
    flag_column("identity_confirmed", default=True),
    Column("offered_key", Text),
    Column("offered_from", Text),
    time_column("offered_at"),
    words_column("past_boot_ids"),
    Column("sleep", Text),
    time_column("power_until"),
    now_column("created_at"),
    CheckConstraint(f"sleep IN ({quoted(Sleep)})", name="sleep"),
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
    refers_to("node_id", "nodes.id", index=True, ondelete="CASCADE"),
)

groups = Table(
    "groups",
    metadata,
    id_column(),
    Column("category", Text, nullable=False),
    Column("name", Text, nullable=False),
    line_column("description"),
    UniqueConstraint("category", "name"),
)

node_groups = Table(
    "node_groups",
    metadata,
    refers_to("node_id", "nodes.id", ondelete="CASCADE"),
    refers_to("group_id", "groups.id", index=True, ondelete="CASCADE"),
    PrimaryKeyConstraint("node_id", "group_id"),
)

# One row, which counts the changes of what boot providers should serve. Each transaction that changes what a node boots
# takes the next number under the row's lock, so that numbers appear in the order of commits, and a provider that serves
# everything up to N has left out nothing below N.
boot_state = Table(
    "boot_state",
    metadata,
    Column("single", Boolean, primary_key=True, server_default=text("true")),
    Column("generation", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("single", name="single"),
)

# Up to which change each provider serves now. Not in its noderole's wall, which is an input of its child noderoles.
boot_providers = Table(
    "boot_providers",
    metadata,
    Column("node_role_id", BigInteger, ForeignKey("node_roles.id", ondelete="CASCADE"), primary_key=True),
    Column("generation", BigInteger, nullable=False),
    now_column("published_at"),
)

install_attempts = Table(
    "install_attempts",
    metadata,
    id_column(),
    refers_to("node_id", "nodes.id", index=True, ondelete="CASCADE"),
    Column("node_role_id", BigInteger, nullable=False),
    Column("run_id", BigInteger, nullable=False, unique=True),
    Column("stage", Text, nullable=False),
    Column("target_os", Text, nullable=False),
    json_column("frozen"),
    Column("generation", BigInteger),
    Column("secret_hash", LargeBinary, unique=True),
    Column("source", Text),
    Column("boot_id", Text),
    Column("installer_boot_id", Text),
    json_column("progress"),
    line_column("error"),
    time_column("acting_until"),
    time_column("resetting_until"),
    time_column("rebooted_at"),
    now_column("created_at"),
    time_column("ended_at"),
    CheckConstraint(f"stage IN ({quoted(Stage)})", name="stage"),
    CheckConstraint(f"(stage IN ({quoted(STAGES_ENDED)})) = (ended_at IS NOT NULL)", name="ended_at"),
    Index("install_attempts_one_a_node", "node_id", unique=True, postgresql_where=text("ended_at IS NULL")),
)

# Orders for machines' controllers that the server which was asked could not reach; each goes with who waits for it.
power_orders = Table(
    "power_orders",
    metadata,
    id_column(),
    refers_to("node_id", "nodes.id", index=True, ondelete="CASCADE"),
    Column("action", Text, nullable=False),
    json_column("tried"),
    Column("taken_by", Text),
    Column("power", Text),
    Column("error", Text),
    now_column("acted_at"),
    CheckConstraint(f"action IN ({quoted(PowerOrder)})", name="action"),
)

# What people agreed to lose: the fingerprint of what is on each disk that an install may wipe, by the disk's name.
confirmed_wipes = Table(
    "confirmed_wipes",
    metadata,
    Column("node_role_id", BigInteger, ForeignKey("node_roles.id", ondelete="CASCADE"), primary_key=True),
    json_column("disks"),
)

# Registration challenges that machines have used; each is deleted when it would have expired anyway.
spent_challenges = Table(
    "spent_challenges",
    metadata,
    Column("challenge", LargeBinary, primary_key=True),
    Column("ends_at", DateTime(timezone=True), nullable=False, index=True),
)
