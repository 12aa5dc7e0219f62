"""How the membership machine behaves at size: simulated clusters, 1 % of all packets lost, hosts that fall silent.

For each size: seconds from a host's power cut to the first that holds it dead, and to the last; deaths nobody died;
messages and bytes a second and node (as encoded, without the transport's own), in the quiet before the first cut and
over all; wall and processor time. One seed is one history: only these two differ between two runs.

Detection is held against memberlist twice: its formula (what it needs in the median, from the size alone) and its rules
(what it would have needed for these very hosts, from the probe that reached each first), which luck does not touch.
"""

import argparse
import gc
import math
import resource
import statistics
import time
from dataclasses import dataclass
from typing import Any

from rackwright.lab.mesh_simulator import NetworkConditions, Simulator
from rackwright.mesh.membership.messages import Ping
from rackwright.mesh.membership.protocol_config import SwimConfig
from rackwright.mesh.membership.protocol_outputs import EventKind, Send
from rackwright.mesh.membership.suspicion import suspicion_timeout
from report import Goal, at_most, emit


@dataclass(frozen=True)
class Plan:
    nodes: int
    seconds: float
    quiet: float
    every: float  # seconds between two power cuts
    settle: float = 30.0  # at the end, for the last one to be known


FULL = [Plan(100, 3600, 300, 60), Plan(1000, 600, 60, 5), Plan(10_000, 120, 30, 3)]
QUICK = [Plan(50, 300, 60, 15), Plan(200, 120, 30, 6)]


class FirstProbes:
    """When a host that was cut off was first probed: the rest of its detection is arithmetic, and so is
    memberlist's.
    """

    def __init__(self) -> None:
        self.cuts: dict[str, float] = {}
        self.probed: dict[str, float] = {}

    def __call__(self, now: float, send: Send) -> None:
        if send.to in self.cuts and send.to not in self.probed and isinstance(send.message.body, Ping):
            self.probed[send.to] = now

    def memberlist(self, nodes: int, config: SwimConfig) -> list[float]:
        """Seconds memberlist's rules would have taken from each cut, for the same first probe."""
        return [
            self.probed[name] - cut_at + after_first_probe(nodes - before, config)
            for before, (name, cut_at) in enumerate(self.cuts.items())
        ]


def after_first_probe(members: int, config: SwimConfig) -> float:
    """Memberlist's: a failed probe is certain at the end of its interval; the suspicion, confirmed, lasts its
    shortest.
    """
    return config.probe_interval + suspicion_timeout(config.suspicion_multiplier, members, config.probe_interval)


def expected_median(members: int, config: SwimConfig) -> float:
    """With many members a given one is probed at random times, once an interval in the mean: the median wait is ln
    2.
    """
    return math.log(2) * config.probe_interval + after_first_probe(members, config)


def run(plan: Plan, seed: int) -> dict[str, Any]:
    started, worked = time.perf_counter(), time.process_time()
    simulator = Simulator(seed, conditions=NetworkConditions(loss=0.01))
    simulator.start_joined(plan.nodes)
    simulator.run_for(plan.quiet)
    quiet_messages, quiet_bytes = simulator.messages, simulator.bytes
    simulator.tap = first_probes = FirstProbes()
    cuts = first_probes.cuts
    cut_one_after_another(simulator, plan, cuts)
    simulator.run_for(plan.seconds - simulator.now)
    first, everyone = detection(simulator, cuts)
    node_seconds = plan.nodes * plan.seconds - sum(plan.seconds - cut_at for cut_at in cuts.values())
    in_quiet = quiet_messages / plan.nodes / plan.quiet
    return {
        "nodes": plan.nodes,
        "virtual_seconds": plan.seconds,
        "power_cuts": len(cuts),
        "first_detection_median_s": round(statistics.median(first), 3),
        "first_detection_worst_s": round(max(first), 3),
        "everyone_knows_median_s": round(statistics.median(everyone), 3),
        "everyone_knows_worst_s": round(max(everyone), 3),
        "memberlist_formula_median_s": round(
            statistics.median(expected_median(plan.nodes - before, simulator.config) for before in range(len(cuts))), 3
        ),
        "memberlist_rules_median_s": round(statistics.median(first_probes.memberlist(plan.nodes, simulator.config)), 3),
        "false_deaths": len(simulator.false_deaths),
        "suspicions_refuted": sum(observation.event.kind is EventKind.ALIVE for observation in simulator.observations),
        "quiet_messages_per_node_s": round(in_quiet, 3),
        "quiet_bytes_per_node_s": round(quiet_bytes / plan.nodes / plan.quiet, 1),
        "messages_per_node_s": round(simulator.messages / node_seconds, 3),
        "bytes_per_node_s": round(simulator.bytes / node_seconds, 1),
        "messages_per_node_and_death": round(
            (simulator.messages - in_quiet * node_seconds) / plan.nodes / len(cuts), 1
        ),
        "messages": simulator.messages,
        "wall_s": round(time.perf_counter() - started, 1),
        "cpu_s": round(time.process_time() - worked, 1),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def cut_one_after_another(simulator: Simulator, plan: Plan, cuts: dict[str, float]) -> None:
    """Another host each time; those cut stay away, and never more than a fifth of all."""
    at_most_cut = plan.nodes // 5
    while simulator.now + plan.every + plan.settle <= plan.seconds and len(cuts) < at_most_cut:
        simulator.run_for(plan.every)
        # Off the beat of the probes, which all have the same period.
        simulator.run_for(0.37 * (len(cuts) % 5) / 5)
        name = f"n{len(cuts)}"
        simulator.power_off(name)
        cuts[name] = simulator.now


def detection(simulator: Simulator, cuts: dict[str, float]) -> tuple[list[float], list[float]]:
    deaths: dict[str, dict[str, float]] = {name: {} for name in cuts}
    for observation in simulator.observations:
        if observation.event.kind is EventKind.DEAD and observation.event.member.name in cuts:
            deaths[observation.event.member.name].setdefault(observation.observer, observation.time)
    running = {name for name, host in simulator.hosts.items() if host.running}
    first, everyone = [], []
    for name, cut_at in cuts.items():
        seen = deaths[name]
        first.append(min(seen.values(), default=math.inf) - cut_at)
        missing = running - seen.keys()
        everyone.append(math.inf if missing else max(seen[observer] for observer in running) - cut_at)
    return first, everyone


def goals(runs: list[dict[str, Any]]) -> list[Goal]:
    smallest, largest = runs[0], runs[-1]
    found = [at_most("false deaths, all sizes", sum(figures["false_deaths"] for figures in runs), 0)]
    for figures in runs:
        name = f"{figures['nodes']} nodes: median seconds to first detection, against memberlist's"
        for yardstick in ("formula", "rules"):
            target = figures[f"memberlist_{yardstick}_median_s"]
            found.append(at_most(f"{name} {yardstick}", figures["first_detection_median_s"], target))
    for unit in ("messages", "bytes"):
        ratio = largest[f"quiet_{unit}_per_node_s"] / smallest[f"quiet_{unit}_per_node_s"]
        found.append(
            at_most(f"{unit} a second and node, {largest['nodes']} nodes against {smallest['nodes']}", ratio, 1.1)
        )
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="small clusters, a few seconds")
    arguments.add_argument("--largest", type=int, default=10_000, help="leave out larger clusters than this")
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    # Millions of short-lived tuples, no cycles to speak of: the collector would only walk the tables again and again.
    gc.disable()
    plans = [plan for plan in (QUICK if chosen.quick else FULL) if plan.nodes <= chosen.largest]
    runs = [run(plan, chosen.seed) for plan in plans]
    emit("swim", {"loss": 0.01, "seed": chosen.seed, "runs": runs}, goals(runs))


if __name__ == "__main__":
    main()
