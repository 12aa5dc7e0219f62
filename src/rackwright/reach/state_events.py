"""What the state engine says of a run, however it came here: lines for people, outputs for the wall, and a verdict."""

import json
from collections.abc import Mapping

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.runs import Answer, Outcome
from rackwright.reach.run_log import Log, is_full, room_in

_TOLD = ("id", "outcome", "function", "comment")
"""What is read of a state that ended. It comes from the node: whatever lacks is a question mark."""


LONGEST_EVENT = 4 * 2**20
"""Characters. What the states of a run put out is in events, and a wall takes far less."""


class Heard:
    """What the engine says, in blocks of lines: for people in the log, and for the wall."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._begun: list[str] = []
        """Of a line that has not ended yet."""
        self._begun_size = 0
        self._outputs: JsonObject = {}
        self._failed: list[str] = []
        self._refused: list[str] = []

    def __call__(self, text: str) -> None:
        lines, end, rest = text.rpartition("\n")
        if end:
            for line in "".join([*self._begun, lines]).split("\n"):
                self.line(line)
            self._begun, self._begun_size = [], 0
        if rest:
            self._begun.append(rest)
            self._begun_size += len(rest)
        if self._begun_size > LONGEST_EVENT:
            self.end()

    def end(self) -> None:
        """Nothing more comes: a last line without an end is one too."""
        if self._begun:
            self._log("".join([*self._begun, "\n"]))
            self._begun, self._begun_size = [], 0

    @property
    def full(self) -> bool:
        return is_full(self._log)

    async def room(self) -> None:
        await room_in(self._log)

    def line(self, text: str) -> None:
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        except RecursionError:  # nested too deep to be an event of the engine
            said = None
        if not isinstance(said, dict) or "event" not in said:
            self._log(f"{text}\n")
            return
        self.hear(said)

    def hear(self, said: Mapping[str, Json]) -> None:
        """One event of the engine."""
        state = said.get("state")
        if said["event"] == "end" and isinstance(state, dict):
            id, outcome, function, comment = (str(state.get(key, "?")) for key in _TOLD)
            self._outputs[id] = said.get("outputs") or {}
            self._log(f"{outcome}: {id} ({function}) {comment}\n")
            if outcome in ("failed", "blocked"):
                self._failed.append(f"{id}: {comment}")
        elif said["event"] == "refused":
            errors = said.get("errors")
            self._refused = [str(error) for error in errors] if isinstance(errors, list) else []
        elif said["event"] == "log":
            self._log(f"{said.get('line', '')}\n")

    def judge(self, outcome: Outcome) -> Outcome:
        if self._refused:
            return Outcome.failure("Refused before anything was touched: " + "; ".join(self._refused))
        if outcome.answer is Answer.FAILED and self._failed:
            return Outcome.failure("States failed: " + "; ".join(self._failed))
        if outcome.answer is Answer.SUCCEEDED:
            return Outcome.success({"states": self._outputs})
        return outcome
