"""Binds the life of a process to that of its parent: when the parent ends, however it ends, the kernel ends the child.

A server or agent that is killed cannot end its children; without this module they would go on unwatched, and collide
with the children of the next start. There are two ways: `DIES_WITH_US` in front of a command, and `die_with` called in
the child. Nothing but the standard library is imported, and little of that, because small processes use this module.
"""

import ctypes
import os
import signal

DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""In front of a command: the command is killed when its parent ends. A parent with threads must use this, because it
must not run Python code between fork and exec. For the kernel, the parent is the thread that starts the command."""

PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int, deadly: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send `deadly` to this process when its parent ends; end at once if it has ended already."""
    _libc.prctl(PR_SET_PDEATHSIG, int(deadly), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
