"""Giving a new system its cloud-init seed over SSH, to the pinned host key, and asking how far its cloud-init is.

One short command asks, and with a seed it gives: it may be sent as often as wanted, since a system that has the seed of
this attempt keeps it. The seed comes on standard input with its digest, so half of one is never used, and nothing is on
a command line.
"""

import asyncio
import hashlib
import io
import re
import shlex
import tarfile
from collections.abc import Awaitable, Callable, Sequence

from rackwright.domain.installs.cloud_init.status import BadStatus, CloudInitState, CloudInitStatus, Hide, read_status
from rackwright.domain.installs.request import RootFile
from rackwright.domain.machines.install_log import one_line
from rackwright.reach.ssh_connections import Connections, ShortAnswer, Target, Unreachable

SECONDS = 25.0
"""For a whole command; a large seed has 400 KB."""
_LABEL = re.compile(r"[A-Za-z0-9-]{1,64}")

_ADVANCE = r"""
exec 2>&1
set -eu
umask 077
if [ ! -x /usr/bin/cloud-init ]; then
    printf '%s\n' kept failed active '{"status": "error", "errors": ["there is no /usr/bin/cloud-init"]}'
    exit 0
fi
mkdir -p /etc/rackwright
exec 9>/run/rackwright-cloud-init.lock
flock 9
marker=/etc/rackwright/cloud-init
off=/etc/cloud/cloud-init.disabled
answer=kept
if [ "$(cat $marker 2>/dev/null || :)" = "$1" ]; then
    :
elif [ -z "$2" ]; then
    echo wanted
    exit 0
else
    seed=$(mktemp /run/rackwright-seed.XXXXXX)
    trap 'rm -f "$seed"' EXIT
    cat >"$seed"
    if [ "$(sha256sum <"$seed")" != "$2  -" ]; then
        echo "the seed arrived incomplete"
        exit 1
    fi
    systemctl stop 'cloud-init*' 'cloud-config*' 'cloud-final*'
    cloud-init clean >/dev/null
    rm -f /run/cloud-init/status.json /run/cloud-init/result.json
    rm -rf /var/lib/cloud/seed/nocloud
    tar -xf "$seed" -C /
    sync
    echo "$1" >$marker
    sync
    answer=delivered
fi
# Behind the marker: a system that loses its power in between still has cloud-init off, and is not given its seed again.
if [ $answer = delivered ] || [ -e $off ]; then
    rm -f $off
    sync
    systemctl daemon-reload
fi
echo $answer
if ! systemctl is-active --quiet cloud-init.target && [ -z "$(systemctl list-jobs --no-legend 'cloud-*')" ]; then
    systemctl start --no-block cloud-init.target
fi
units=$(systemctl list-units --failed --plain --no-legend 'cloud-*.service' | cut -d ' ' -f 1 | tr '\n' ' ')
echo "failed $units"
if systemctl is-active --quiet cloud-init.target; then
    echo active
    cloud-init status --format json || :
else
    echo waiting
    echo '{"status": "running"}'
fi
"""
"""Takes the label of the attempt and the digest of the seed; without one it only asks. The marker is written when all
of the seed is there; a system that loses its power once cloud-init is on runs it at its next boot by itself. What an
image's cloud-init did before is forgotten: its stages keep their order only if none of them is over. To start the
target of stages that are over would repeat one that failed, whose errors would be gone then."""


class CloudInitDelivery:
    """Gives systems their seeds. `targets` returns how a node is reached, and which host key it must show."""

    def __init__(self, connections: Connections, targets: Callable[[int], Awaitable[Target]]) -> None:
        self._connections = connections
        self._targets = targets

    async def ask(self, node_id: int, label: str, hide: Hide) -> CloudInitStatus | None:
        """Return how far cloud-init of a system is; None if it has no seed of the attempt `label` yet.

        Unreachable, if that cannot be told now.
        """
        return await self._run(node_id, label, b"", hide)

    async def deliver(self, node_id: int, label: str, files: Sequence[RootFile], hide: Hide) -> CloudInitStatus:
        """Give a system the seed of the attempt `label` unless it has it, and return how far its cloud-init is."""
        seed = await asyncio.to_thread(pack_seed, files)
        status = await self._run(node_id, label, seed, hide)
        if status is None:
            raise Unreachable("it did not take its cloud-init seed")
        return status

    async def _run(self, node_id: int, label: str, seed: bytes, hide: Hide) -> CloudInitStatus | None:
        assert _LABEL.fullmatch(label), label
        digest = hashlib.sha256(seed).hexdigest() if seed else ""
        words = ["exec", "sh", "-c", _ADVANCE, "sh", label, digest]
        answer = ShortAnswer()
        target = await self._targets(node_id)
        try:
            async with (
                asyncio.timeout(SECONDS),
                self._connections.command(node_id, target, _join(words), lambda: answer) as channel,
            ):
                try:
                    channel.write(seed)
                    channel.write_eof()
                    return read_answer(await answer.text, hide)
                finally:
                    channel.abort()
        except TimeoutError:
            self._connections.drop(node_id)
            raise Unreachable(f"{target.node} did not answer about cloud-init within {SECONDS:g} s") from None
        except (BadStatus, BrokenPipeError) as error:
            raise Unreachable(f"cloud-init of {target.node} cannot be started: {error}") from error


def _join(words: Sequence[str]) -> str:
    return " ".join([words[0], *(shlex.quote(word) for word in words[1:])])


def pack_seed(files: Sequence[RootFile]) -> bytes:
    """Return files as a tar archive; the same files give the same bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for file in files:
            content = file.content.encode()
            entry = tarfile.TarInfo(file.path.removeprefix("/"))
            entry.size, entry.mode, entry.uname, entry.gname = len(content), file.mode, "root", "root"
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def read_answer(text: str, hide: Hide) -> CloudInitStatus | None:
    """Return what an answer to the command says, None if the seed is wanted; BadStatus if it says nothing."""
    lines = text.split("\n", 3)
    if lines[0] == "wanted":
        return None
    if len(lines) < 4 or lines[0] not in ("delivered", "kept") or not lines[1].startswith("failed"):
        raise BadStatus(one_line(hide(text)[-300:]) or "it says nothing")
    status = read_status(lines[3], hide)
    units = one_line(lines[1].removeprefix("failed"))
    if status.state is CloudInitState.PENDING and units and lines[2] == "active":
        # Its last stage is over and left no result: it broke.
        return CloudInitStatus(CloudInitState.FAILED, f"these failed: {units}")
    return status
