"""Binds the life of a process to that of its parent: when the parent ends, however it ends, the kernel ends the child.

A server or agent that is killed cannot end its children; without this they would go on unwatched, and fight with those
of the next start. There are two ways to arrange it: `DIES_WITH_US` in front of a command, and `die_with` called in the
child. Nothing but the standard library is imported, and little of that: small processes use it.
"""

import ctypes
import os
import signal

DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""In front of a command: it is killed with its parent. The way for a parent with threads, which must not run Python
code between fork and exec. The parent is, for the kernel, the thread that starts the command."""

PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int, deadly: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send `deadly` to this process when its parent ends; end at once if that was before this call."""
    _libc.prctl(PR_SET_PDEATHSIG, int(deadly), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
