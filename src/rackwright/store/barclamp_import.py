"""Import barclamps into the database: idempotent and complete.

What a barclamp no longer declares is deleted, unless something is bound to it; then the import is refused.
"""

from collections.abc import Iterable, Sequence

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import Barclamp, Catalogue, Flag, Role
from rackwright.domain.errors import Conflict, Rule
from rackwright.store.catalogue.barclamp_files import keep_contents
from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.events.outbox import emit
from rackwright.store.graph.binding import bind_committed
from rackwright.store.graph.deployments import SYSTEM, get_deployment
from rackwright.store.graph.subgraph import bump_graph, role_closure
from rackwright.store.graph.transitions import mark_roles_dirty
from rackwright.store.graph.upgrades import upgrade_after_import
from rackwright.store.hooks.hook_calls import queue_jig_active
from rackwright.store.hooks.hook_queue import delete_orphaned_calls

STRUCTURAL_FLAGS = frozenset({Flag.IMPLICIT, Flag.CLUSTER, Flag.SERVICE, Flag.ABSTRACT, Flag.DESTRUCTIVE})
"""Flags that shaped the graph, or that keep a noderole from running twice: they are fixed while the role is bound."""


async def import_barclamps(session: GraphSession, barclamps: Sequence[Barclamp]) -> list[str]:
    """Make the catalogue hold what these barclamps declare; other barclamps stay as they are.

    Return the names of the deployments in which something is no longer bound as its role says now: their next commit
    changes that.
    """
    before = await session.catalogue()
    await keep_contents(session, barclamps)
    for barclamp in barclamps:
        barclamp_id = await _write_barclamp(session, barclamp)
        await _write_jigs_and_hammers(session, barclamp, barclamp_id)
        await _write_roles(session, barclamp, barclamp_id)
    for barclamp in barclamps:
        await _write_attribs(session, barclamp)
    for barclamp in barclamps:
        await _delete_undeclared(session, barclamp)
    await session.run("UPDATE graph SET catalogue_version = catalogue_version + 1")
    await bump_graph(session)
    session.changed_catalogue()
    after = await session.catalogue()
    after.catalogue.check()
    await _check_bound_roles(session, before, after)
    await mark_roles_dirty(session, _roles_with_changed_inputs(before, after))
    await _bind_bootstrap(session, after.catalogue)
    behind = await upgrade_after_import(session, before, after)
    await delete_orphaned_calls(session)
    active_before = {jig.name for jig in before.catalogue.jigs.values() if jig.active}
    for jig in after.catalogue.jigs.values():
        if jig.active and jig.name not in active_before:
            await queue_jig_active(session, jig.name)
    for barclamp in barclamps:
        await emit(session, "barclamp.imported", data={"name": barclamp.name, "version": barclamp.version})
    return behind


async def _bind_bootstrap(session: GraphSession, catalogue: Catalogue) -> None:
    """Bind the bootstrap roles to the admin nodes that are there already.

    A bootstrap role that needs a role or an attrib which no barclamp declares yet is bound when that is imported.
    """
    ready = [role for role in catalogue.roles_with_flag(Flag.BOOTSTRAP) if _all_declared(catalogue, role)]
    nodes = await session.rows("SELECT id FROM nodes WHERE admin ORDER BY id")
    if ready and nodes:
        system = await get_deployment(session, SYSTEM, EVERYTHING)
        await bind_committed(session, system.id, [(node.id, role) for node in nodes for role in ready])


def _all_declared(catalogue: Catalogue, role: str) -> bool:
    """Return whether every role that a role may pull in is declared, and every attrib that those want to read."""
    closure = role_closure(catalogue, [role])
    return closure <= catalogue.roles.keys() and all(
        want in catalogue.attribs for name in closure for want in catalogue.roles[name].wants
    )


async def _write_barclamp(session: GraphSession, barclamp: Barclamp) -> int:
    id: int = await session.value(
        """
        INSERT INTO barclamps (name, display, description, version, parent, path, digest)
        VALUES (:name, :display, :description, :version, :parent, :path, :digest)
        ON CONFLICT (name) DO UPDATE SET display = excluded.display, description = excluded.description,
            version = excluded.version, parent = excluded.parent, path = excluded.path,
            digest = excluded.digest, imported_at = now()
        RETURNING id
        """,
        name=barclamp.name,
        display=barclamp.display,
        description=barclamp.description,
        version=barclamp.version,
        parent=barclamp.parent,
        path=barclamp.path,
        digest=barclamp.digest,
    )
    return id


async def _claim_names(
    session: Session, table: str, names: Iterable[str], barclamp: Barclamp, barclamp_id: int
) -> None:
    """Refuse names of a table that another barclamp has declared already."""
    taken = await session.row(
        f"SELECT t.name, b.name AS owner FROM {table} t JOIN barclamps b ON b.id = t.barclamp_id"
        " WHERE t.name = ANY (:names) AND t.barclamp_id <> :barclamp_id ORDER BY t.name LIMIT 1",
        names=list(names),
        barclamp_id=barclamp_id,
    )
    if taken is not None:
        raise Conflict(
            Rule.EXISTS,
            f"Barclamp {barclamp.name!r} declares {table[:-1]} {taken.name!r}, which barclamp {taken.owner!r} has "
            "already. Rename one of the two.",
        )


async def _write_jigs_and_hammers(session: GraphSession, barclamp: Barclamp, barclamp_id: int) -> None:
    await _claim_names(session, "jigs", (jig.name for jig in barclamp.jigs), barclamp, barclamp_id)
    for jig in barclamp.jigs:
        # Once a jig was imported, the operator decides whether it is active: an import does not change that.
        await session.run(
            """
            INSERT INTO jigs (name, barclamp_id, kind, description, active, client_role)
            VALUES (:name, :barclamp_id, :kind, :description, :active, :client_role)
            ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, description = excluded.description,
                client_role = excluded.client_role
            """,
            name=jig.name,
            barclamp_id=barclamp_id,
            kind=jig.kind,
            description=jig.description,
            active=jig.active,
            client_role=jig.client_role,
        )
    await _claim_names(session, "hammers", (hammer.name for hammer in barclamp.hammers), barclamp, barclamp_id)
    for hammer in barclamp.hammers:
        await session.run(
            """
            INSERT INTO hammers (name, barclamp_id, kind, priority, description)
            VALUES (:name, :barclamp_id, :kind, :priority, :description)
            ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, priority = excluded.priority,
                description = excluded.description
            """,
            name=hammer.name,
            barclamp_id=barclamp_id,
            kind=hammer.kind,
            priority=hammer.priority,
            description=hammer.description,
        )


async def _write_roles(session: GraphSession, barclamp: Barclamp, barclamp_id: int) -> None:
    await _claim_names(session, "roles", (role.name for role in barclamp.roles), barclamp, barclamp_id)
    for role in barclamp.roles:
        await session.run(
            """
            INSERT INTO roles (name, barclamp_id, jig, description, requires, attaches, wants, provides, conflicts,
                               flags, template, deadline, hooks)
            VALUES (:name, :barclamp_id, :jig, :description, :requires, :attaches, :wants, :provides, :conflicts,
                    :flags, :template, :deadline, :hooks)
            ON CONFLICT (name) DO UPDATE SET jig = excluded.jig, description = excluded.description,
                requires = excluded.requires, attaches = excluded.attaches, wants = excluded.wants,
                provides = excluded.provides, conflicts = excluded.conflicts, flags = excluded.flags,
                template = excluded.template, deadline = excluded.deadline, hooks = excluded.hooks
            """,
            name=role.name,
            barclamp_id=barclamp_id,
            jig=role.jig,
            description=role.description,
            requires=list(role.requires),
            attaches=list(role.attaches),
            wants=list(role.wants),
            provides=list(role.provides),
            conflicts=list(role.conflicts),
            flags=[str(flag) for flag in Flag if role.has(flag)],
            template=Jsonb(role.template),
            deadline=role.deadline,
            hooks=sorted(role.hooks),
        )


async def _write_attribs(session: GraphSession, barclamp: Barclamp) -> None:
    barclamp_id = await session.value("SELECT id FROM barclamps WHERE name = :name", name=barclamp.name)
    await _claim_names(session, "attribs", (attrib.name for attrib in barclamp.attribs), barclamp, barclamp_id)
    for attrib in barclamp.attribs:
        await session.run(
            """
            INSERT INTO attribs (name, barclamp_id, role_id, map, description, schema, "default", has_default, secret)
            VALUES (:name, :barclamp_id, (SELECT id FROM roles WHERE name = :role), :map, :description, :schema,
                    :default, :has_default, :secret)
            ON CONFLICT (name) DO UPDATE SET role_id = excluded.role_id, map = excluded.map,
                description = excluded.description, schema = excluded.schema, "default" = excluded."default",
                has_default = excluded.has_default, secret = excluded.secret
            """,
            name=attrib.name,
            barclamp_id=barclamp_id,
            role=attrib.role,
            map=list(attrib.map),
            description=attrib.description,
            schema=None if attrib.schema is None else Jsonb(attrib.schema),
            default=Jsonb(attrib.default) if attrib.has_default else None,
            has_default=attrib.has_default,
            secret=attrib.secret,
        )


async def _delete_undeclared(session: GraphSession, barclamp: Barclamp) -> None:
    id = await session.value("SELECT id FROM barclamps WHERE name = :name", name=barclamp.name)
    declared_roles = [role.name for role in barclamp.roles]
    bound = await session.row(
        """
        SELECT r.name, n.name AS node, d.name AS deployment FROM roles r
        LEFT JOIN node_roles nr ON nr.role_id = r.id LEFT JOIN nodes n ON n.id = nr.node_id
        LEFT JOIN deployment_roles dr ON dr.role_id = r.id LEFT JOIN deployments d ON d.id = dr.deployment_id
        WHERE r.barclamp_id = :id AND r.name <> ALL (:declared) AND (nr.id IS NOT NULL OR dr.id IS NOT NULL)
        ORDER BY r.name, n.name LIMIT 1
        """,
        id=id,
        declared=declared_roles,
    )
    if bound is not None:
        where = f"node {bound.node!r}" if bound.node else f"deployment {bound.deployment!r}"
        raise Conflict(
            Rule.BOUND,
            f"Barclamp {barclamp.name!r} no longer declares role {bound.name!r}, which is still bound to {where}. "
            "Unbind it first.",
        )
    await _check_attribs_unused(session, barclamp, id)
    await _check_jigs_unused(session, barclamp, id)
    for table, names in (
        ("attribs", [attrib.name for attrib in barclamp.attribs]),
        ("roles", declared_roles),
        ("hammers", [hammer.name for hammer in barclamp.hammers]),
        ("jigs", [jig.name for jig in barclamp.jigs]),
    ):
        await session.run(f"DELETE FROM {table} WHERE barclamp_id = :id AND name <> ALL (:names)", id=id, names=names)


async def _check_attribs_unused(session: Session, barclamp: Barclamp, barclamp_id: int) -> None:
    used = await session.row(
        """
        SELECT a.name, n.name AS node, r.name AS role FROM attribs a JOIN node_role_links l ON l.attrib_id = a.id
        JOIN node_roles nr ON nr.id = l.child_id JOIN nodes n ON n.id = nr.node_id JOIN roles r ON r.id = nr.role_id
        WHERE a.barclamp_id = :id AND a.name <> ALL (:declared) ORDER BY a.name LIMIT 1
        """,
        id=barclamp_id,
        declared=[attrib.name for attrib in barclamp.attribs],
    )
    if used is not None:
        raise Conflict(
            Rule.BOUND,
            f"Barclamp {barclamp.name!r} no longer declares attrib {used.name!r}, which {used.role} on {used.node} "
            "takes as input. Unbind that first.",
        )


async def _check_jigs_unused(session: Session, barclamp: Barclamp, barclamp_id: int) -> None:
    used = await session.row(
        """
        SELECT j.name, r.name AS role, n.name AS node FROM jigs j JOIN roles r ON r.jig = j.name
        JOIN node_roles nr ON nr.role_id = r.id JOIN nodes n ON n.id = nr.node_id
        WHERE j.barclamp_id = :id AND j.name <> ALL (:declared) ORDER BY j.name, r.name, n.name LIMIT 1
        """,
        id=barclamp_id,
        declared=[jig.name for jig in barclamp.jigs],
    )
    if used is not None:
        raise Conflict(
            Rule.BOUND,
            f"Barclamp {barclamp.name!r} no longer declares jig {used.name!r}, which does the work of {used.role} on "
            f"{used.node}. Unbind that first, or give the role another jig.",
        )


async def _check_bound_roles(session: Session, before: StoredCatalogue, after: StoredCatalogue) -> None:
    """Refuse new rules that the bound noderoles, which were bound by the old ones, do not satisfy."""
    old, new = before.catalogue, after.catalogue
    changed = [name for name in old.roles.keys() & new.roles.keys() if old.roles[name] != new.roles[name]]
    restructured = [name for name in changed if (old.roles[name].flags ^ new.roles[name].flags) & STRUCTURAL_FLAGS]
    bound = await _first_bound_role(session, restructured)
    if bound is not None:
        flags = sorted((old.roles[bound].flags ^ new.roles[bound].flags) & STRUCTURAL_FLAGS)
        raise Conflict(
            Rule.BOUND, f"Role {bound!r} is bound, so its flag {flags[0]} cannot change. Unbind it first, or rename it."
        )
    for name in new.roles:
        for other in sorted(new.rivals(name) - old.rivals(name)):
            await _check_roles_apart(session, after, name, other, same_node=True)
        for other in sorted(new.stand_ins(name) - old.stand_ins(name)):
            await _check_roles_apart(session, after, name, other, same_node=False)


async def _first_bound_role(session: Session, names: Sequence[str]) -> str | None:
    name = await session.value(
        "SELECT r.name FROM roles r JOIN node_roles nr ON nr.role_id = r.id WHERE r.name = ANY (:names) LIMIT 1",
        names=list(names),
    )
    return None if name is None else str(name)


async def _check_roles_apart(
    session: Session, stored: StoredCatalogue, role: str, other: str, *, same_node: bool
) -> None:
    """Refuse that two roles are bound which no longer may be: on the same node, or anywhere."""
    if role not in stored.role_ids or other not in stored.role_ids:
        return
    both_bound = await session.row(
        "SELECT a.node_id FROM node_roles a JOIN node_roles b ON (b.node_id = a.node_id OR NOT :same_node)"
        " WHERE a.role_id = :role AND b.role_id = :other LIMIT 1",
        role=stored.role_ids[role],
        other=stored.role_ids[other],
        same_node=same_node,
    )
    if both_bound is not None:
        rule = "conflict" if same_node else "stand in for each other"
        raise Conflict(
            Rule.BOUND,
            f"Roles {role!r} and {other!r} would now {rule}, but both are bound. Unbind one of them first.",
        )


def _roles_with_changed_inputs(before: StoredCatalogue, after: StoredCatalogue) -> list[int]:
    """Return the ids of the roles whose noderoles may get other inputs than before the import."""
    old, new = before.catalogue, after.catalogue

    def inputs(catalogue: Catalogue, role: Role) -> object:
        wanted_attribs = [catalogue.attribs[want] for want in role.wants if want in catalogue.attribs]
        attribs = [*catalogue.attribs_of(role.name), *wanted_attribs]
        return (role.template, role.wants, role.jig, [(a.map, a.default, a.has_default) for a in attribs])

    return [
        after.role_ids[name]
        for name, role in new.roles.items()
        if name in old.roles and inputs(old, old.roles[name]) != inputs(new, role)
    ]
