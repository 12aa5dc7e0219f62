"""The jig of simulated machines: sends the run, with its token, to the machine, which behaves as a real one would."""

from typing import Self

import httpx

from rackwright.domain.networks.call_targets import simulated_address
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import JigPorts
from rackwright.reach.run_log import Log


class LabJig(Jig):
    """Runs noderoles on simulated machines. The noderole's data may say `simulate: {seconds: 0.1, fail: true}`."""

    kind = "lab"
    lab_only = True

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        assert ports.lab_client is not None, "only a lab's server has this jig, and it has a way to its machines"
        return cls(ports.lab_client)

    async def run(self, run: Run, log: Log) -> Outcome:
        address = simulated_address(run.input.get("bmc"))
        if address is None:
            return Outcome.failure("This node is no machine of the lab.")
        options = run.input.get("simulate")
        simulate = options if isinstance(options, dict) else {}
        seconds = simulate.get("seconds", 0.05)
        log(f"{run.role} on {run.node}: {seconds} s\n")
        try:
            response = await self._client.post(
                f"{address}/run", json={"token": run.token, "role": run.role, "seconds": seconds}, timeout=None
            )
        except httpx.TransportError as error:
            return Outcome.failure(f"The machine does not answer: {error or type(error).__name__}")
        if response.status_code >= 400:
            return Outcome.failure(f"The machine refused: {response.text[:1000]}")
        return Outcome.failure("It was told to fail.") if simulate.get("fail") else Outcome.success({"ran": run.role})
