"""Runs a command as root where no user namespace can be made.

Run it as `python -m tests.support.servers.no_namespaces COMMAND ...`.

It needs one namespace to forbid all others: within it the limit is zero, and every uid is what it is outside.
"""

import ctypes
import os
import sys
from pathlib import Path

CLONE_NEWUSER = 0x10000000


def main(command: list[str]) -> None:
    entered, leave_entered = os.pipe()
    mapped, leave_mapped = os.pipe()
    inside = os.getpid()
    if os.fork() == 0:  # only from outside can more than one's own id be mapped
        os.read(entered, 1)
        for kind in ("uid_map", "gid_map"):
            Path(f"/proc/{inside}/{kind}").write_text("0 0 65536")
        os.write(leave_mapped, b"x")
        os._exit(0)
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "this test needs to make a user namespace")
    os.write(leave_entered, b"x")
    os.read(mapped, 1)
    os.wait()
    Path("/proc/sys/user/max_user_namespaces").write_text("0")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
