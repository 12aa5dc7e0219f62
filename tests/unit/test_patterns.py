"""No regular expression of the product can be made slow from outside.

Every pattern in the source is listed here, by the constant it is or by its text. A new one has to be entered: as one
that meets what people, machines, members or files of others say, or as internal, with the reason. All of them are
tried with hostile input, and the time they take may grow no faster than the input does.
"""

from collections.abc import Callable
from heapq import nlargest
from itertools import islice

import pytest
from tests.support.patterns import Pattern, Text, all_patterns, hostile_inputs, seconds_of

MEETS_OUTSIDE = {
    "api/http/bodies.py": (
        "_BRACKET",
        "_ODD_ESCAPE",
        "_STRING",
    ),
    "api/routes/machines/boot.py": (
        ":[0-9]+$",
        "[^A-Za-z0-9._-]",
    ),
    "api/http/compression.py": ("_GZIP",),
    "api/auth/cookies.py": ("_OURS",),
    "api/http/etags.py": ("_TAG",),
    "api/routes/events.py": ("KIND",),
    "api/routes/machines/machines.py": (
        "NAME",
        "^[A-Za-z0-9-]+$",
    ),
    "api/routes/power.py": (
        "^[!-~]*$",
        r"^[0-9A-Za-z._:\[\]-]{1,253}$",
    ),
    "api/routes/runs.py": (r"^\d{1,9}$",),
    "api/http/trace.py": (
        "_REQUEST_ID",
        "_TRACEPARENT",
    ),
    "api/routes/webhooks.py": ("KIND",),
    "cli/barclamp_template.py": ("[a-z][a-z0-9-]{0,30}[a-z0-9]",),
    "cli/output/terminal.py": ("_CONTROL",),
    "domain/networks/dhcp.py": ("_INTERFACE",),
    "domain/networks/dhcp_hosts.py": ("_BOOTENV",),
    "domain/patterns.py": (
        "_NUMBER",
        "_TOKEN",
    ),
    "domain/barclamps/fields.py": (
        "_NAME",
        "_STEP",
    ),
    "domain/installs/cloud_init/secret_references.py": (
        "NAME",
        "REFERENCE",
    ),
    "domain/installs/cloud_init/user_data.py": ("_FORBIDDEN",),
    "domain/installs/node_network/values.py": (
        "_DOMAIN",
        "_MAC",
        "_NAME",
        "_PORT",
    ),
    "domain/installs/storage/choose.py": ("_WWN_PREFIX",),
    "domain/installs/storage/values.py": (
        "_BOUND",
        "_DISK_NAME",
        "_ID",
        "_LABEL",
        "_LVM_NAME",
        "_LVM_OWN",
        "_OPTIONS",
        "_PATH",
        "_RAID_NAME",
        "_SERIAL",
        "_SIZE",
        "_TAKEN_IN_DEV",
        "_WORD",
    ),
    "domain/machines/lldp.py": ("_LINK",),
    "domain/barclamps/marked_values.py": (
        "_FLOAT",
        "_FORBIDDEN",
        "_INTEGER",
        "_NO_NUMBER",
        "_OTHER_BASE",
    ),
    "domain/names.py": (
        "_FQDN",
        "_MAC",
        "_NAME",
    ),
    "domain/networks/networks.py": ("_NAME",),
    "domain/machines/machine_names.py": ("_NOT_IN_LABELS",),
    "domain/machines/reported_bmc.py": (
        "_MAC",
        "_PLACE",
    ),
    "domain/machines/ssh_login.py": ("_USER",),
    "hammers/base.py": (
        "BOOT_ID",
        "DEVICE",
    ),
    "hammers/qemu.py": ("NAME",),
    "provision/images/host_sources.py": (
        "EMPTY_OPTIONS",
        "FIELD",
        "ONE_LINE",
        "ONE_LINE_LIMIT",
        "STANZA_LIMIT",
        r"\n[ \t]*\n",
    ),
    "api/http/boot_loaders.py": ("/+",),
    "api/http/ranges.py": ("RANGE",),
    "provision/grub.py": (
        "_DISK_MARK",
        "_WORD",
    ),
    "provision/images/boot_check.py": (
        "INITRD",
        "KERNEL",
        "SCHEMA",
        r"([^0-9]*)([0-9]*)",
        r"^(Package|Version|Status): (.{1,200})$",
        r"""^PRETTY_NAME="?([^"\n]{1,100})""",
    ),
    "provision/images/chunks.py": ("DIGEST",),
    "provision/images/importing/disk_images.py": ("BOOT_MOUNT",),
    "provision/images/importing/ext_reader.py": (
        "FAST_LINK",
        "LISTED",
        "MTIME",
    ),
    "provision/images/importing/oci_images.py": (
        "LAYER_TYPES",
        "REFERENCE",
        "sha256:[0-9a-f]{64}",
    ),
    "provision/images/importing/registry.py": (
        "DIGEST",
        "REFERENCE",
    ),
    "provision/images/manifest.py": (
        "FILE_NAME",
        "NAME",
    ),
    "provision/images/shelf.py": ("UNFINISHED",),
    "provision/images/systems.py": ("PACKAGE",),
    "provision/network_boot.py": (
        "BOOTENV",
        "HOST",
        "MACHINE",
        "_ARGUMENTS",
    ),
    "reach/network_switch/__init__.py": ("_ANSWER",),
    "reach/parcel.py": (
        "FOLDER",
        "SCRIPT_NAME",
    ),
    "mesh/joining/admission.py": (
        "HOST_KEY",
        "[a-z_][a-z0-9_-]{0,31}",
    ),
    "mesh/datastore/etcd_members.py": ("_ACTIVE",),
    "mesh/health/health_checks.py": ("_NAME",),
    "mesh/transport/http.py": (
        r"(?i)\r\ncontent-length: *([0-9]{1,6})\r\n",
        r"\r\nAdvertise: ([\x21-\x7e]{1,270})\r\n",
    ),
    "mesh/identity/server_identity.py": ("NAME",),
    "mesh/membership/member.py": (
        "_ADDRESS",
        "_LABEL_KEY",
        "_LABEL_VALUE",
        "_NAME",
    ),
    "mesh/runs/event_batches.py": ("_ODD",),
    "mesh/identity/trust.py": (
        "KEY",
        "NAME",
    ),
    "states/reading/declarations.py": (r"(\.+)(.*)",),
    "states/extensions.py": (
        "DIGEST",
        "NAME",
        "VERSION",
    ),
    "states/modules/cron.py": (
        "FIELD",
        "MARKED",
    ),
    "states/modules/git.py": (
        "COMMIT",
        r"\w+://[^/@:]*:[^/@]*@",
    ),
    "states/modules/group.py": ("NAME",),
    "states/modules/pkg.py": (
        "NAME",
        "VERSION",
    ),
    "states/modules/pkgrepo/apt.py": (
        "ONE_LINE",
        "[^A-Za-z0-9.]+",
        r"\n\s*\n",
        r"^([\w-]+):(.*)$",
        r"^\w+:/*",
    ),
    "states/modules/pkgrepo/yum.py": (
        r"\[([^\]]+)\]",
        r"^(?=\[)",
    ),
    "states/modules/service.py": ("NAME",),
    "states/modules/sysctl.py": (
        "NAME",
        "[./]",
        r"\s*(?:-\s*)?([^#;\s=]+)\s*=",
    ),
    "states/modules/user.py": (
        "NAME",
        r"[!*]|\$[0-9a-z]+\$|_|[./0-9A-Za-z]{13}$",
    ),
    "states/outputs.py": (
        "_REFERENCE",
        "_SHELL_EXPANSION",
    ),
    "states/reading/quick_yaml.py": (
        "_DOUBLE",
        "_FLOW_TOKEN",
        "_KEY",
        "_SINGLE",
        "_UNSUPPORTED",
    ),
    "states/reading/render.py": ("_LINE_MARK",),
    "states/shelltext.py": (
        r"['\"\\]",
        "_BASH_TEST",
        "_COMPARES_NUMBERS",
        "_HERE_DOCUMENT",
        "_INTEGER",
    ),
    "states/reading/sls.py": (
        "_FLOAT",
        "_INT",
    ),
    "states/reading/sources.py": (
        "COMMIT",
        r'Good "git" signature for (\S+) with',
        "REFERENCE",
        r"\w+://[^/@:]*:[^/@]*@",
    ),
    "states/support/content.py": ("[0-9a-fA-F]+",),
    "states/support/packages/apt.py": (
        r" (?:   |\*\*\*) (\S+) -?\d+$",
        "(?:^|, )([^ ,(]+)",
        r"(?i)(signed-by\s*[=:]\s*)(/\S+?)(?=[\s\],])",
    ),
    "states/support/packages/versions.py": (
        r"(\d+)",
        r"\d+|[a-zA-Z]+|~|\^",
    ),
    "store/machines/ansible_inventory.py": ("[^A-Za-z0-9_]",),
    "store/db/listing.py": (
        r"([\\%_])",
        r"\d{1,18}",
    ),
}

INTERNAL = {
    "api/routes/service/docs.py: `([^`]+)`": "our own documentation",
    r"api/routes/service/docs.py: \*\*([^*]+)\*\*": "our own documentation",
    "reach/cloud_init.py: _LABEL": "the label of an install, which the server makes",
    "lab/namespaces.py: NAME": "network namespaces that we named",
    "store/embedded/cluster.py: \\b(ERROR|FATAL|PANIC):": "what the PostgreSQL that we start says",
    r"store/db/pipeline.py: %|(?<![:\w]):(\w+)": "our own SQL",
}

WRITTEN_BY_OPERATORS = {
    "provision/images/host_sources.py: suite": "the package sources of this host, and a release of Debian that we name",
    "states/reading/declarations.py: target": "the names a state watches, by whoever wrote the state",
    "states/reading/template_environment.py: pattern": "a filter of templates, by whoever wrote the template",
    "states/modules/file/edit.py: str(arguments['pattern'])": "what a state replaces",
    "states/modules/file/edit.py: pattern": "what a state replaces",
    "states/modules/file/tree.py: pattern[2:]": "the files that a state wants",
    "states/running/record.py: '|'.join((re.escape(secret) for secret in alternatives))": "a run's secrets, escaped",
}
"""Put together at run time, from what somebody wrote who may run anything on the node anyway."""

SCAN = 600
"""Characters with which the worst input is looked for."""
SMALL, LARGE = 4_000, 16_000
GROWTH = 8.0
"""Four times the input takes four times as long, or sixteen times where it is looked at again and again."""
NOTICED = 0.005
"""Seconds; what takes less with the large input harms nobody, and is too short to be compared."""

PATTERNS = {pattern.key: pattern for pattern in all_patterns()}


def test_every_pattern_of_the_source_is_listed_with_where_its_input_comes_from() -> None:
    outside = {f"{module}: {label}" for module, labels in MEETS_OUTSIDE.items() for label in labels}
    listed = outside | set(INTERNAL) | set(WRITTEN_BY_OPERATORS)
    assert set(PATTERNS) - listed == set(), (
        "enter these in a table of this file: what they are, and whose input meets them"
    )
    assert listed - set(PATTERNS) == set(), "these are no longer in the source"


@pytest.mark.parametrize("key", sorted(set(PATTERNS) - set(WRITTEN_BY_OPERATORS)))
def test_the_time_a_pattern_takes_grows_no_faster_than_its_input(key: str) -> None:
    pattern = PATTERNS[key]
    if pattern.text is None:
        assert key == "api/routes/webhooks.py: KIND", "its text could not be read from the source"
        return  # imported from api/routes/events.py, and tried there
    _assert_never_slow(pattern)


def test_a_careless_pattern_is_noticed() -> None:
    careless = Pattern("here", "careless", r'"(?:[^"\\]|\\.)*"', methods={"sub"})
    with pytest.raises(AssertionError, match="times as long"):
        # A quarter of the length is enough to see it, and takes a sixteenth of the time.
        _assert_never_slow(careless, SMALL // 4, LARGE // 4)


def _assert_never_slow(pattern: Pattern, short: int = SMALL, long: int = LARGE) -> None:
    for call in pattern.calls():
        for index in _slowest(pattern, call):
            small, large = (_hostile(pattern, size, index) for size in (short, long))
            _assert_linear(call, small, large)


def _slowest(pattern: Pattern, call: Callable[[Text], object]) -> list[int]:
    """Which of the hostile inputs took longest."""
    assert pattern.text is not None
    times = [(seconds_of(call, text), index) for index, text in enumerate(hostile_inputs(pattern.text, SCAN))]
    return [index for _, index in nlargest(3, times)]


def _hostile(pattern: Pattern, size: int, index: int) -> Text:
    assert pattern.text is not None
    return next(islice(hostile_inputs(pattern.text, size), index, None))


def _assert_linear(call: Callable[[Text], object], small: Text, large: Text) -> None:
    for _ in range(5):  # a busy machine may stretch any of them, but not each time
        shorter, longer = seconds_of(call, small, tries=3), seconds_of(call, large)
        if longer < NOTICED or longer < shorter * GROWTH:
            return
    raise AssertionError(f"{large[:40]!r}...: four times the input takes {longer / shorter:.0f} times as long")
