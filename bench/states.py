"""How fast the state engine is, beside Salt, Ansible and pyinfra doing the same work in the same run.

    bench/states.py                      our figures only
    bench/states.py --peers [--venvs D]  installs the peers into throw-away environments under D and times them too

Each figure is the wall-clock time of the whole command in seconds, the best of its repeats. Everything runs on this
machine: no SSH, no master. `--only ROW` limits it; `--list` names the rows.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import Goal, at_least, at_most, emit

MODES = ("ansible", "justdoit", "genius")
PEERS = {"salt": "salt==3008.*", "ansible": "ansible-core", "pyinfra": "pyinfra"}
COUNT, LONG = 200, 1000


@dataclass(frozen=True)
class Row:
    """The same work, written for each tool."""

    name: str
    sls: str
    playbook: list[dict[str, Any]]
    deploy: str


def rows(work: Path) -> list[Row]:
    files = work / "files"
    files.mkdir()
    edges = {n: sorted({(n * 7919 + k * 104729) % n for k in range(3)}) for n in range(1, LONG)}
    packages = installed_packages()
    return [
        Row("one trivial state", nops(1, {}), [debug(0)], calls(1)),
        Row(
            "200 commands",
            "".join(f"c{n}:\n  cmd.run:\n    - name: 'true'\n" for n in range(COUNT)),
            [{"name": f"c{n}", "ansible.builtin.command": "true"} for n in range(COUNT)],
            "from pyinfra.operations import server\n"
            f"for n in range({COUNT}):\n    server.shell(name=f'c{{n}}', commands=['true'])\n",
        ),
        Row(
            "200 managed files, second run",
            "".join(
                f"{files}/f{n}:\n  file.managed:\n    - mode: '0644'\n"
                f"    - contents: |\n        number {n}\n        end\n"
                for n in range(COUNT)
            ),
            [
                {"ansible.builtin.copy": {"dest": f"{files}/f{n}", "mode": "0644", "content": f"number {n}\nend\n"}}
                for n in range(COUNT)
            ],
            "from io import StringIO\nfrom pyinfra.operations import files\n"
            f"for n in range({COUNT}):\n"
            f"    files.put(src=StringIO(f'number {{n}}\\nend\\n'), dest=f'{files}/f{{n}}', mode='644')\n",
        ),
        Row(
            "1,000 in a chain",
            nops(LONG, {n: [n - 1] for n in range(1, LONG)}),
            [debug(n) for n in range(LONG)],
            calls(LONG),
        ),
        Row("1,000 in a graph", nops(LONG, edges), [debug(n) for n in range(LONG)], calls(LONG)),
        Row(
            "200 packages to check",
            "".join(f"{name}:\n  pkg.installed: []\n" for name in packages),
            # Both others get their best case, one list: a task for each package takes minutes.
            [{"ansible.builtin.apt": {"name": packages, "state": "present"}}],
            f"from pyinfra.operations import apt\napt.packages(packages={packages!r})\n",
        ),
    ]


def nops(count: int, edges: dict[int, list[int]]) -> str:
    lines = []
    for n in range(count):
        lines.append(
            f"s{n}:\n  test.nop:\n    - require: " + json.dumps([{"test": f"s{target}"} for target in edges.get(n, [])])
        )
    return "\n".join(lines) + "\n"


def debug(n: int) -> dict[str, Any]:
    return {"name": f"s{n}", "ansible.builtin.debug": {"msg": "nothing"}}


def calls(count: int) -> str:
    return (
        "from pyinfra.operations import python\ndef nothing():\n    pass\n"
        f"for n in range({count}):\n    python.call(name=f's{{n}}', function=nothing)\n"
    )


def installed_packages() -> list[str]:
    if shutil.which("dpkg-query") is None:
        return []
    listed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status} ${Multi-Arch}\n"],
        capture_output=True,
        text=True,
        check=True,
    )
    named = [line.split() for line in listed.stdout.splitlines()]
    return sorted({words[0] for words in named if words[1] == "installed"})[:COUNT]


# The tools


def ours(work: Path, row: Row, mode: str) -> Callable[[], list[str]]:
    folder = work / "ours"
    folder.mkdir(exist_ok=True)
    (folder / "row.sls").write_text(row.sls)
    command = Path(sys.executable).with_name("rackwright")
    return lambda: [str(command), "state", "apply", str(folder / "row.sls"), "--mode", mode, "--json"]


def salt(work: Path, row: Row, bin: Path) -> list[str]:
    folder = work / "salt"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "states").mkdir(parents=True)
    (folder / "states" / "row.sls").write_text(row.sls)
    settings = {
        "root_dir": str(folder),
        "cachedir": str(folder / "cache"),
        "pki_dir": str(folder / "pki"),
        "sock_dir": str(folder / "sock"),
        "file_client": "local",
        "file_roots": {"base": [str(folder / "states")]},
        "id": "bench",
        "log_file": os.devnull,
        # Looking up the names of every address is not the work that is measured.
        "enable_fqdns_grains": False,
    }
    (folder / "minion").write_text(json.dumps(settings))
    words = ["--local", "--config-dir", str(folder), "--out", "json", "--log-level", "quiet", "state.apply", "row"]
    return [str(bin / "salt-call"), *words]


def ansible(work: Path, row: Row, bin: Path) -> list[str]:
    play: dict[str, Any] = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": row.playbook}
    play["vars"] = {"ansible_python_interpreter": "/usr/bin/python3"}
    (work / "play.json").write_text(json.dumps([play]))
    return [str(bin / "ansible-playbook"), "-i", "localhost,", str(work / "play.json")]


def pyinfra(work: Path, row: Row, bin: Path) -> list[str]:
    (work / "deploy.py").write_text(row.deploy)
    return [str(bin / "pyinfra"), "-y", "@local", str(work / "deploy.py")]


COMMANDS = {"salt": salt, "ansible": ansible, "pyinfra": pyinfra}


def install(venvs: Path) -> dict[str, Path]:
    """The peers, each in an environment of its own; kept there for the next time."""
    ready: dict[str, Path] = {}
    for name, requirement in PEERS.items():
        folder = venvs / name
        if not (folder / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", requirement]
            subprocess.run(pip, check=True, stdout=sys.stderr)
            (folder / "ready").touch()
        ready[name] = folder / "bin"
    return ready


def timed(command: list[str], work: Path, repeats: int) -> float:
    """The best of some repeats. A tool that fails has no figure: the benchmark stops and says so."""
    best = float("inf")
    environment = {**os.environ, "ANSIBLE_LOCALHOST_WARNING": "false", "HOME": str(work), "PYTHONDONTWRITEBYTECODE": ""}
    for _ in range(repeats):
        started = time.perf_counter()
        ran = subprocess.run(command, capture_output=True, text=True, cwd=work, env=environment, check=False)
        best = min(best, time.perf_counter() - started)
        if ran.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}")
    return round(best, 3)


# In one process


def sort_seconds(count: int) -> float:
    """Planning the order of many states: the graph and its topological sort, without reading files."""
    from rackwright.states.combine import Requisite, State
    from rackwright.states.graph import StateIndex, build_graph
    from rackwright.states.reading.declarations import Block, Declaration

    states = []
    for n in range(count):
        state = State(n, Declaration(f"s{n}", "bench", "bench.sls", n), Block("test", "nop", [], "bench.sls", n))
        state.order = 10000 + n
        wanted = sorted({(n * 7919 + k * 104729) % n for k in range(3)}) if n else []
        state.requisites = {"require": [Requisite("test", f"s{target}", "bench.sls", n) for target in wanted]}
        states.append(state)
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        order = build_graph(states, StateIndex(states), []).sort()
        best = min(best, time.perf_counter() - started)
        assert len(order) == count
    return round(best, 3)


def memory_megabytes(work: Path, count: int) -> float:
    """The most memory that a run of many states takes at any time."""
    path = work / "memory.sls"
    path.write_text(nops(count, {n: sorted({(n * 7919 + k * 104729) % n for k in range(3)}) for n in range(1, count)}))
    command = [str(Path(sys.executable).with_name("rackwright")), "state", "apply", str(path), "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert after > before or before < 100 * 1024, "a larger child ran before, so this one's memory is not known"
    return round(after / 1024, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--venvs", type=Path, help="where the peers are installed; default: a temporary folder")
    parser.add_argument("--only", action="append", help="the rows to run")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-states-") as scratch:
        work = Path(scratch)
        table = rows(work)
        if arguments.list:
            print("\n".join(row.name for row in table))
            return
        chosen = [row for row in table if not arguments.only or row.name in arguments.only]
        figures, goals = measure(chosen, work, arguments)
    emit("states", figures, goals)


def measure(chosen: list[Row], work: Path, arguments: argparse.Namespace) -> tuple[dict[str, Any], list[Goal]]:
    # First, while no other child has been larger.
    memory = memory_megabytes(work, 10_000)
    peers = install((arguments.venvs or work / "venvs").resolve()) if arguments.peers else {}
    figures: dict[str, Any] = {"rows": {}}
    goals: list[Goal] = []
    for row in chosen:
        if not row.sls:
            continue
        times: dict[str, float] = {}
        for mode in MODES:
            command = ours(work, row, mode)
            if "second run" in row.name:
                timed(command(), work, 1)
            times[f"rackwright {mode}"] = timed(command(), work, arguments.repeats)
        for name, bin in peers.items():
            command_line = COMMANDS[name](work, row, bin)
            # The slow ones are far away from the goal, so once is enough for them.
            times[name] = timed(command_line, work, 1)
            if times[name] < 10:
                times[name] = (
                    min(times[name], timed(command_line, work, arguments.repeats - 1))
                    if arguments.repeats > 1
                    else times[name]
                )
        figures["rows"][row.name] = times
        print(row.name, times, file=sys.stderr)
        goals += row_goals(row.name, times, peers)
    start = timed([str(Path(sys.executable).with_name("rackwright")), "state", "doc", "test.nop"], work, 10)
    trivial = Row("start", nops(1, {}), [], "")
    whole = timed(ours(work, trivial, "ansible")(), work, 10)
    sort = sort_seconds(100_000)
    figures.update(
        start_seconds=whole, documentation_seconds=start, sort_100000_seconds=sort, memory_10000_megabytes=memory
    )
    goals += [
        at_most("one trivial state, whole command, seconds", whole, 0.15),
        at_most("100,000 states sorted, seconds", sort, 5),
        at_most("memory of 10,000 states, MB", memory, 100),
    ]
    return figures, goals


def row_goals(name: str, times: dict[str, float], peers: dict[str, Path]) -> list[Goal]:
    if not peers:
        return []
    slowest = max(value for key, value in times.items() if key.startswith("rackwright"))
    fastest = min(times[peer] for peer in peers)
    goals = [at_least(f"{name}: fastest peer / our slowest mode", fastest / slowest, 1)]
    if name == "200 commands":
        goals.append(at_least("200 commands: Salt / our justdoit", times["salt"] / times["rackwright justdoit"], 3))
    return goals


if __name__ == "__main__":
    main()
