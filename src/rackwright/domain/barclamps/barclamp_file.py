"""The parser of `barclamp.yml`: from the text of one file to a checked Barclamp.

Every mistake in a file is a BarclampInvalid with its line. A name that another file may still declare (a required role,
a jig) is no mistake here: names are bound late. Folders are read from disk by the loader (`barclamps/loader.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rackwright.domain.barclamps.attrib_schema import find_schema_fault, find_value_fault
from rackwright.domain.barclamps.fields import FieldReader, shorten_value, suggest_name
from rackwright.domain.barclamps.marked_values import MarkedValue, read_yaml
from rackwright.domain.catalogue import (
    EXCLUDES,
    Attrib,
    Barclamp,
    Catalogue,
    Flag,
    Hammer,
    Jig,
    Role,
    find_cycle,
)
from rackwright.domain.errors import BarclampInvalid

BARCLAMP_KEYS = ("name", "display", "description", "version", "parent", "jigs", "hammers", "roles", "attribs")
JIG_KEYS = ("name", "kind", "description", "active", "client_role")
HAMMER_KEYS = ("name", "kind", "priority", "description")
ATTRIB_KEYS = ("name", "map", "description", "schema", "default", "secret")
ROLE_KEYS = (
    *("name", "jig", "description", "requires", "attaches", "wants-attribs", "provides", "conflicts", "flags"),
    *("template", "deadline", "attribs"),
)

MAX_DEADLINE = 30 * 24 * 3600
"""Seconds that a role may give its runs. No run is kept in the history for longer, so none may take longer."""
MAX_PRIORITY = 2**31 - 1


Reserved = Mapping[tuple[str, str], str]
"""Names that only a barclamp of Rackwright may declare: (role, jig, hammer, attrib or barclamp; its name) -> the
barclamp that owns it."""


@dataclass(frozen=True)
class KnownKinds:
    """The implementations of jigs and of hammers that exist, which a file may name."""

    jigs: Sequence[str]
    hammers: Sequence[str]


def parse_barclamp(text: str, file: str, kinds: KnownKinds, reserved: Reserved | None = None) -> Barclamp:
    """Return what the file declares; raise BarclampInvalid, with the line, for the first mistake in it."""
    return _Parser(file, kinds, reserved or {}).parse(read_yaml(text, file))


@dataclass
class _Parser:
    """The parsing of one file. It records the line of each declaration for the checks that come after all are read."""

    file: str
    kinds: KnownKinds
    reserved: Reserved = field(default_factory=dict)
    barclamp: str = ""
    lines: dict[tuple[str, str], int] = field(default_factory=dict)
    client_lines: dict[str, int] = field(default_factory=dict)
    attribs: list[Attrib] = field(default_factory=list)

    def parse(self, root: MarkedValue) -> Barclamp:
        fields = FieldReader(root, self.file, "the barclamp file", BARCLAMP_KEYS)
        self.barclamp = fields.name("name")
        fields.what = f"barclamp {self.barclamp!r}"
        if ("barclamp", self.barclamp) in self.reserved:
            raise fields.wrong(
                "name",
                f"Barclamp {self.barclamp!r} comes with Rackwright, and an import of this one would take what it"
                " declares away. Choose another name.",
            )
        parent = fields.optional_name("parent")
        if parent == self.barclamp:
            raise fields.wrong("parent", f"Barclamp {parent!r} cannot be its own parent.")
        parsed = Barclamp(
            name=self.barclamp,
            display=fields.text("display") or self.barclamp,
            description=fields.text("description"),
            version=fields.text("version"),
            parent=parent,
            jigs=tuple(self._jig(item) for item in fields.items("jigs")),
            hammers=tuple(self._hammer(item) for item in fields.items("hammers")),
            roles=tuple(self._role(item) for item in fields.items("roles")),
        )
        self._attribs(fields, role=None)
        parsed = replace(parsed, attribs=tuple(self.attribs))
        self._check_catalogue(Catalogue.of([parsed]))
        return parsed

    def _declare(self, fields: FieldReader, kind: str) -> str:
        """Read the name of a jig, hammer, role or attrib, and record its line; two of one kind may not share a name."""
        name = fields.name("name")
        first = self.lines.get((kind, name))
        if first is not None:
            raise fields.wrong("name", f"There are two {kind}s named {name!r}; the first is on line {first}.")
        owner = self.reserved.get((kind, name))
        if owner is not None:
            raise fields.wrong(
                "name",
                f"{kind.capitalize()} {name!r} belongs to barclamp {owner!r}, which comes with Rackwright. Rename it.",
            )
        self.lines[kind, name] = fields.line("name")
        fields.what = f"{kind} {name!r}"
        return name

    def _kind(self, fields: FieldReader, name: str, known: Sequence[str]) -> str:
        """Read which implementation is meant. It must exist, or the jig or hammer would never do anything."""
        kind = fields.optional_name("kind") or name
        if kind not in known:
            reason = f"There is no kind {kind!r} for {fields.what}{suggest_name(kind, known) or '.'}"
            raise fields.wrong("kind", f"{reason} The kinds are: {', '.join(known)}.")
        return kind

    def _jig(self, item: MarkedValue) -> Jig:
        fields = FieldReader(item, self.file, "a jig", JIG_KEYS)
        name = self._declare(fields, "jig")
        self.client_lines[name] = fields.line("client_role")
        return Jig(
            name=name,
            barclamp=self.barclamp,
            kind=self._kind(fields, name, self.kinds.jigs),
            description=fields.text("description"),
            active=fields.boolean("active", True),
            client_role=fields.optional_name("client_role"),
        )

    def _hammer(self, item: MarkedValue) -> Hammer:
        fields = FieldReader(item, self.file, "a hammer", HAMMER_KEYS)
        name = self._declare(fields, "hammer")
        return Hammer(
            name=name,
            barclamp=self.barclamp,
            kind=self._kind(fields, name, self.kinds.hammers),
            priority=fields.number("priority", 0, -MAX_PRIORITY, MAX_PRIORITY),
            description=fields.text("description"),
        )

    def _role(self, item: MarkedValue) -> Role:
        fields = FieldReader(item, self.file, "a role", ROLE_KEYS)
        name = self._declare(fields, "role")
        role = Role(
            name=name,
            barclamp=self.barclamp,
            jig=fields.name("jig"),
            description=fields.text("description"),
            requires=fields.names("requires"),
            attaches=fields.names("attaches"),
            wants=fields.names("wants-attribs"),
            provides=fields.names("provides"),
            conflicts=fields.names("conflicts"),
            flags=self._flags(fields),
            template=fields.mapping("template"),
            deadline=fields.seconds("deadline", MAX_DEADLINE),
        )
        self._check_relations(fields, role)
        own = self._attribs(fields, role=name)
        if "template" in fields:
            self._check_template(fields.marked("template"), own)
        return role

    def _flags(self, fields: FieldReader) -> frozenset[Flag]:
        known = {flag.value: flag for flag in Flag}
        for text, line in fields.texts("flags"):
            if text not in known:
                reason = f"There is no flag {shorten_value(text)}{suggest_name(text, known) or '.'}"
                raise BarclampInvalid(self.file, line, f"{reason} The flags are: {', '.join(known)}.")
        flags = frozenset(known[text] for text, _ in fields.texts("flags"))
        for (first, second), reason in EXCLUDES.items():
            if first in flags and second in flags:
                raise fields.wrong("flags", f"The flags {first} and {second} exclude each other: {reason}.")
        return flags

    def _check_relations(self, fields: FieldReader, role: Role) -> None:
        for key in ("requires", "attaches", "provides", "conflicts"):
            if role.name in fields.names(key):
                line = fields.line_of(key, role.name)
                raise BarclampInvalid(self.file, line, f"Role {role.name!r} names itself in {key!r}.")
        # A role and one that provides it may never be parent and child, so no such role could be bound.
        for key, names in (("requires", role.requires), ("attaches", role.attaches)):
            for other in names:
                if other in role.provides:
                    raise BarclampInvalid(
                        self.file,
                        fields.line_of(key, other),
                        f"Role {role.name!r} provides {other!r} and cannot also have it in {key!r}:"
                        " a role and one that stands in for it may not depend on each other.",
                    )

    def _attribs(self, fields: FieldReader, role: str | None) -> list[Attrib]:
        """Read the attribs of one owner, which share one tree of data."""
        own = [self._attrib(item, role) for item in fields.items("attribs")]
        clash = find_clash(own)
        if clash:
            first, second, reason = clash
            line = max(self.lines["attrib", first.name], self.lines["attrib", second.name])
            raise BarclampInvalid(self.file, line, reason)
        self.attribs.extend(own)
        return own

    def _attrib(self, item: MarkedValue, role: str | None) -> Attrib:
        fields = FieldReader(item, self.file, "an attrib", ATTRIB_KEYS)
        attrib = Attrib(
            name=self._declare(fields, "attrib"),
            barclamp=self.barclamp,
            map=fields.path("map"),
            role=role,
            description=fields.text("description"),
            schema=fields.mapping("schema") if "schema" in fields else None,
            default=fields.marked("default").plain() if "default" in fields else None,
            has_default="default" in fields,
            secret=fields.boolean("secret", False),
        )
        if attrib.schema is not None:
            self._check_schema(fields.marked("schema"), attrib)
        if attrib.has_default:
            self._check_value(fields.marked("default"), attrib, "The default of")
        return attrib

    def _check_schema(self, marked: MarkedValue, attrib: Attrib) -> None:
        fault = find_schema_fault(attrib.schema or {})
        if fault:
            line = marked.at(fault.path).line
            raise BarclampInvalid(
                self.file, line, f"The schema of attrib {attrib.name!r} cannot be used: {fault.reason}."
            )

    def _check_value(self, marked: MarkedValue, attrib: Attrib, what: str) -> None:
        if attrib.secret:
            raise BarclampInvalid(
                self.file,
                marked.line,
                f"{what} attrib {attrib.name!r} cannot be here: it is secret, and this file is not encrypted."
                " Set it on a node, a deployment's role or a noderole.",
            )
        fault = find_value_fault(attrib.schema, marked.plain()) if attrib.schema is not None else None
        if fault:
            line = marked.at(fault.path).line
            raise BarclampInvalid(
                self.file, line, f"{what} attrib {attrib.name!r} does not fit its schema: {fault.reason}."
            )

    def _check_template(self, template: MarkedValue, own: Iterable[Attrib]) -> None:
        """Check the template's values for the role's own attribs. Attribs of other files are not known here."""
        for attrib in own:
            value = template.find(attrib.map)
            if value:
                self._check_value(value, attrib, "The template's value for")

    def _check_catalogue(self, catalogue: Catalogue) -> None:
        for jig in catalogue.jigs.values():
            fault = catalogue.client_role_fault(jig)
            if fault:
                raise BarclampInvalid(self.file, self.client_lines[jig.name], fault)
        path = find_cycle({name: catalogue.needed_roles(name) for name in catalogue.roles})
        if path:
            reason = f"These roles need each other in a circle: {' -> '.join(path)}."
            raise BarclampInvalid(self.file, self.lines["role", path[0]], reason)


def find_clash(attribs: Sequence[Attrib]) -> tuple[Attrib, Attrib, str] | None:
    """Return two attribs of one tree of data that cannot both be in it, and why; None if all can."""
    by_path: dict[tuple[str, ...], Attrib] = {}
    for attrib in attribs:
        first = by_path.setdefault(attrib.map, attrib)
        if first is not attrib:
            path = "/".join(attrib.map)
            return first, attrib, f"Attribs {first.name!r} and {attrib.name!r} are both at {path}; one must move."
    for attrib in attribs:
        for length in range(1, len(attrib.map)):
            outer = by_path.get(attrib.map[:length])
            if outer and outer.secret != attrib.secret:
                secret, visible = (outer, attrib) if outer.secret else (attrib, outer)
                reason = (
                    f"Attrib {secret.name!r} is secret, but {visible.name!r} shows part of the same place"
                    f" ({'/'.join(outer.map)}): make both secret or move one."
                )
                return outer, attrib, reason
    return None
