"""IPMI among the hammers: wherever kinds of BMCs are listed, it is listed, and in its order."""

from typing import get_args

from rackwright.api.routes.power import BmcIn
from rackwright.barclamps.loader import built_in
from rackwright.cli.commands.node import BMC_KINDS

PROVISIONER = next(barclamp for barclamp in built_in() if barclamp.name == "provisioner")


def test_hammers_are_preferred_in_the_order_redfish_ipmi_ssh_qemu() -> None:
    ordered = sorted(PROVISIONER.hammers, key=lambda hammer: hammer.priority)
    assert [hammer.name for hammer in ordered] == ["redfish", "ipmi", "ssh", "qemu"]


def test_the_kinds_of_bmcs_are_the_same_in_api_command_and_attribs() -> None:
    schemas = {attrib.map: attrib.schema for attrib in PROVISIONER.attribs}
    kinds = BmcIn.model_json_schema()["properties"]["kind"]["enum"]
    assert kinds == ["redfish", "ipmi", "qemu"]
    assert schemas["bmc", "kind"] == {"enum": kinds}
    assert list(BMC_KINDS) == kinds
    suites = get_args(BmcIn.model_fields["cipher_suite"].annotation)
    assert schemas["bmc", "cipher_suite"] == {"enum": list(suites)}
