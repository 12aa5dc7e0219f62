"""Reading the state engine's events of a run: lines for the log, outputs for the wall, and the outcome.

The events come over SSH or through the mesh; both are read here.
"""

import json
from collections.abc import Mapping

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.runs import Answer, Outcome
from rackwright.reach.run_log import Log, is_full, wait_for_room

_STATE_FIELDS = ("id", "outcome", "function", "comment")
"""The fields that are read of a state that ended. They come from the node: a missing one is shown as a question
mark."""


LONGEST_EVENT = 4 * 2**20
"""Characters. The outputs of a run's states are in events, and a wall takes far less than this."""


class StateEventReader:
    """Reads the engine's events from blocks of text: shows them to people in the log, and collects outputs for the
    wall."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._partial_line: list[str] = []
        """The pieces of a line that has not ended yet."""
        self._partial_size = 0
        self._outputs: JsonObject = {}
        self._failed: list[str] = []
        self._refused: list[str] = []

    def __call__(self, text: str) -> None:
        lines, end, partial = text.rpartition("\n")
        if end:
            for line in "".join([*self._partial_line, lines]).split("\n"):
                self.read_line(line)
            self._partial_line, self._partial_size = [], 0
        if partial:
            self._partial_line.append(partial)
            self._partial_size += len(partial)
        if self._partial_size > LONGEST_EVENT:
            self.end()

    def end(self) -> None:
        """Write out a last line that has no end, since nothing more comes."""
        if self._partial_line:
            self._log("".join([*self._partial_line, "\n"]))
            self._partial_line, self._partial_size = [], 0

    @property
    def full(self) -> bool:
        return is_full(self._log)

    async def room(self) -> None:
        await wait_for_room(self._log)

    def read_line(self, text: str) -> None:
        try:
            event = json.loads(text)
        except ValueError:
            event = None
        except RecursionError:  # nested too deep to be an event of the engine
            event = None
        if not isinstance(event, dict) or "event" not in event:
            self._log(f"{text}\n")
            return
        self.read_event(event)

    def read_event(self, event: Mapping[str, Json]) -> None:
        """Take one event of the engine: log it, and note its outputs, failures or refusals."""
        state = event.get("state")
        if event["event"] == "end" and isinstance(state, dict):
            id, outcome, function, comment = (str(state.get(key, "?")) for key in _STATE_FIELDS)
            self._outputs[id] = event.get("outputs") or {}
            self._log(f"{outcome}: {id} ({function}) {comment}\n")
            if outcome in ("failed", "blocked"):
                self._failed.append(f"{id}: {comment}")
        elif event["event"] == "refused":
            errors = event.get("errors")
            self._refused = [str(error) for error in errors] if isinstance(errors, list) else []
        elif event["event"] == "log":
            self._log(f"{event.get('line', '')}\n")

    def conclude(self, outcome: Outcome) -> Outcome:
        """Return the outcome of the run: `outcome`, which the transport gave, with what the events add to it."""
        if self._refused:
            return Outcome.failure("Refused before anything was touched: " + "; ".join(self._refused))
        if outcome.answer is Answer.FAILED and self._failed:
            return Outcome.failure("States failed: " + "; ".join(self._failed))
        if outcome.answer is Answer.SUCCEEDED:
            return Outcome.success({"states": self._outputs})
        return outcome
