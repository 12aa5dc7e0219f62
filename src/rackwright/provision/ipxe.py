"""The boot scripts that the server gives to iPXE. All that goes into a script is checked against an allow-list
first."""

from rackwright.provision.network_boot import NetworkBoot, check_arguments, check_names

FIRST_SCRIPT = "#!ipxe\nchain /boot/${netX/mac:hexhyp} || reboot\n"
"""For DHCP servers that can name only one file for all machines."""
BOOT_MAC = "${netX/mac}"

TRY_AGAIN = """\
:failed
echo Rackwright could not be reached, or has no image. Trying again in 10 s.
sleep 10
reboot
"""


def render_ipxe_script(boot: NetworkBoot) -> str:
    """Return the iPXE script for a boot."""
    check_names(boot)
    check_arguments(" ".join(boot.arguments))
    head = f"#!ipxe\n# bootenv {boot.bootenv}\n"
    if boot.is_local:
        # For UEFI a program that ends well ends all boots, and it asks what to do; after one that fails it goes on.
        return f"{head}exit 1\n"
    arguments = [*(f"initrd={name}" for name in boot.initrds), *boot.kernel_arguments(BOOT_MAC)]
    server = f"http://{boot.host}"
    initrds = [f"initrd --name {name} {server}{path} || goto failed\n" for name, path in boot.initrds.items()]
    return (
        f"{head}kernel --name kernel {server}{boot.kernel} {' '.join(arguments)} || goto failed\n"
        f"{''.join(initrds)}boot || goto failed\n{TRY_AGAIN}"
    )
