"""Calls a state: its conditions, check, apply, check_cmd and retries, as a generator that yields what takes time.

The generator yields a `Command` to be run, a `Sleep` or a `BlockingCall`, and is sent the result; so one thread runs
any number of states, and every mode runs the same code.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Generator, List, NamedTuple, Optional, Tuple, Union

from ..catalogue import Schema
from ..combine import State
from ..module import Arguments, Check, Command, Context, Finished, Result, StateError, StateFunction
from ..options import condition_command, conditions, creates_skip_reason, parse_retry
from ..outputs import Reference, pick_output
from ..plan import Plan, collect_secret_texts
from ..shelltext import display_text
from .record import Mask, Record, StateOutcome


class Sleep(NamedTuple):
    """A pause of a state, in which other states go on."""

    seconds: float


class BlockingCall(NamedTuple):
    """A call that may block, and so needs a thread where other states could go on meanwhile."""

    call: Callable[[], Any]


Request = Union[Command, Sleep, BlockingCall]
CallSteps = Generator[Request, Any, Record]

ContextFactory = Callable[[State, bool, Tuple[str, ...]], Context]

POLL_SECONDS = 0.1
"""How often other nodes are asked for an output or a gate that a state waits for."""


class _OutputNotKnownYet(Exception):
    """A dry run does not know the output of another state."""


class StateCaller:
    """Calls the state functions of one run and returns their records."""

    def __init__(self, plan: Plan, records: List[Optional[Record]], contexts: ContextFactory, mask: Mask) -> None:
        self._plan = plan
        self._records = records
        self._contexts = contexts
        self._mask = mask

    def call(self, state: State, dry: bool, retried: bool = True) -> CallSteps:
        """Apply a state, or in a dry run find what would change, and return its record."""
        schema = self._plan.schemas[state.index]
        return (yield from self._attempts(state, dry, retried, lambda: self._check_and_apply(state, schema, dry)))

    def react(self, state: State, dry: bool, changed: Tuple[str, ...]) -> CallSteps:
        """Run the function's reaction to a change elsewhere, for `watch` and `listen`, and return its record."""
        schema = self._plan.schemas[state.index]
        return (yield from self._attempts(state, dry, True, lambda: self._react_once(state, schema, dry, changed)))

    def _attempts(self, state: State, dry: bool, retried: bool, attempt: Callable[[], CallSteps]) -> CallSteps:
        retry = parse_retry(state.options) if retried else None
        if retry is None:
            return (yield from self._attempt_once(state, attempt))
        if dry:
            record = yield from self._attempt_once(state, attempt)
            record.comment += (
                f"  The state would be retried every {retry.interval} seconds (with a splay of up to {retry.splay}"
                f" seconds) a maximum of {retry.attempts} times or until a result of {retry.until} is returned"
            )
            return record
        earlier_attempts: List[str] = []
        tries = 1
        while True:
            record = yield from self._attempt_once(state, attempt)
            if record.result == retry.until or retry.attempts <= tries:
                break
            attempt_text = f'Returned a result of "{record.result}", with the following comment: "{record.comment}"'
            earlier_attempts.append(f"Attempt {tries}: {attempt_text}")
            import random

            yield Sleep(retry.interval + (random.randint(0, retry.splay) if retry.splay else 0))  # noqa: S311 - only a delay
            tries += 1
        record.comment = "\n".join([*earlier_attempts, record.comment])
        return record

    def _attempt_once(self, state: State, attempt: Callable[[], CallSteps]) -> CallSteps:
        try:
            yield from self._wait_for_remote_outputs(state)
            arguments, options = self._fill_references(state)
            skip_reason = (yield from self._find_skip_reason(options, arguments)) if options else None
            if skip_reason is not None:
                record = Record(state, StateOutcome.SKIPPED, True, skip_reason)
                record.skipped_by_condition = True
            else:
                try:
                    record = yield from attempt()
                except StateError as error:
                    record = Record(state, StateOutcome.FAILED, False, str(error))
            if "check_cmd" in options:
                yield from self._run_check_cmd(record, options["check_cmd"])
        except _OutputNotKnownYet as unknown:
            record = Record(state, StateOutcome.CHANGED, None, str(unknown))
        except StateError as error:
            record = Record(state, StateOutcome.FAILED, False, str(error))
        except Exception as error:  # noqa: BLE001 - a module that raises fails its state, and no other
            record = Record(state, StateOutcome.FAILED, False, _exception_comment(error))
        if state.options.get("no_log"):
            self._mask.add(collect_secret_texts([record.changes, record.outputs]))
        return record

    # Arguments

    def _wait_for_remote_outputs(self, state: State) -> Generator[Request, Any, None]:
        """Wait for the outputs of other nodes that a state refers to, while other states go on."""
        keys_filled_late = self._plan.filled_late.get(state.index)
        if keys_filled_late is None:
            return
        values: Dict[str, Any] = {"name": state.name, **state.arguments, **state.options}
        while any(self._plan.references.is_awaiting(values.get(key)) for key in keys_filled_late):
            yield Sleep(POLL_SECONDS)

    def _fill_references(self, state: State) -> Tuple[Arguments, Dict[str, Any]]:
        keys_filled_late = self._plan.filled_late.get(state.index)
        if keys_filled_late is None:
            return state.arguments, state.options
        schema = self._plan.schemas[state.index]
        filled = {key: self._fill_value(schema, key, value, keys_filled_late) for key, value in state.arguments.items()}
        options = {key: self._fill_value(schema, key, value, keys_filled_late) for key, value in state.options.items()}
        state.name = display_text(filled["name"])
        self._check_shell(schema, state, filled.get("shell"), keys_filled_late)
        arguments, problems = schema.validate(filled)
        if problems:
            raise StateError("; ".join(message for _, message in problems))
        self._mask.add(text for key in schema.secrets for text in collect_secret_texts(arguments.get(key)))
        return arguments, options

    def _fill_value(self, schema: Schema, key: str, value: Any, keys_filled_late: List[str]) -> Any:
        return (
            self._plan.references.fill(value, self._lookup, schema.read_by(key)) if key in keys_filled_late else value
        )

    def _check_shell(self, schema: Schema, state: State, shell: Any, keys_filled_late: List[str]) -> None:
        """Raise StateError if outputs cannot be quoted for a shell that is itself an output, and so known only now."""
        for key in keys_filled_late if "shell" in keys_filled_late else ():
            value = state.arguments.get(key, state.options.get(key))
            reason = self._plan.references.unsafe_reason(value, schema.read_by(key), shell)
            if reason:
                raise StateError(reason)

    def _lookup(self, reference: Reference) -> Any:
        record = self._records[reference.state]
        target = self._plan.states[reference.state]
        if record is None:
            raise StateError(f"{target.id!r} has not run, so it has no outputs")
        fields = record.fields()
        if record.result is None and reference.path[0] not in fields:
            raise _OutputNotKnownYet(f"What {target.id!r} puts out is known only after it has run")
        return pick_output(
            fields, reference.path, f"{target.qualified_function} {target.id!r} ({record.outcome.value})"
        )

    # Conditions

    def _find_skip_reason(
        self, options: Dict[str, Any], arguments: Arguments
    ) -> Generator[Request, Any, Optional[str]]:
        """Return the comments of the conditions if one of them skips the state; else None.

        All conditions are evaluated, as in Salt.
        """
        comments: List[str] = []
        skip = False
        for option, commands in conditions(options):
            if option == "creates":
                reason = creates_skip_reason(commands, isinstance(options["creates"], str))
                skip = skip or reason is not None
                comments.append(reason or "Creates files not found")
                continue
            passed = 0
            for text in commands:
                finished: Finished = yield condition_command(text, arguments)
                if finished.status != 0:
                    break
                passed += 1
            holds = passed == len(commands)
            skip = skip or (not holds if option == "onlyif" else holds and bool(commands))
            comments.append(f"{option} condition is {'true' if holds else 'false'}")
        return "\n".join(comments) if skip else None

    def _run_check_cmd(self, record: Record, commands: Union[str, List[str]]) -> Generator[Request, Any, None]:
        """Run check_cmd, which decides whether a state succeeded, whatever the result of the state itself."""
        for text in commands if isinstance(commands, list) else [commands]:
            finished: Finished = yield condition_command(text, {}, use_arguments=False)
            if finished.status != 0:
                record.result, record.outcome = False, StateOutcome.FAILED
                record.comment = "check_cmd determined the state failed"
                return
        record.result = True
        record.comment = "check_cmd determined the state succeeded"
        if record.outcome is not StateOutcome.SKIPPED:
            record.outcome = StateOutcome.CHANGED if record.changes else StateOutcome.UNCHANGED

    # The function

    def _check_and_apply(self, state: State, schema: Schema, dry: bool) -> CallSteps:
        function = schema.function
        arguments, _ = self._fill_references(state)
        context = self._contexts(state, dry, ())
        check: Check = yield from _call_function(function, lambda: function.check(arguments, context))
        if dry or not check.changes:
            return record_of_check(state, check)
        result = yield from self._apply(function, arguments, check, context)
        return record_of_result(state, result)

    def _apply(
        self, function: StateFunction, arguments: Arguments, check: Check, context: Context
    ) -> Generator[Request, Any, Result]:
        result = yield from _call_function(function, lambda: function.apply(arguments, check, context))
        return (yield from _settle_command(function, arguments, result))

    def check(self, state: State) -> Generator[Request, Any, Check]:
        """Run only the check of a state, for a batch that applies several states at once."""
        function = self._plan.schemas[state.index].function
        arguments, _ = self._fill_references(state)
        context = self._contexts(state, False, ())
        check: Check = yield from _call_function(function, lambda: function.check(arguments, context))
        return check

    def _react_once(self, state: State, schema: Schema, dry: bool, changed: Tuple[str, ...]) -> CallSteps:
        function = schema.function
        if function.watch is None:
            raise StateError(f"{state.qualified_function} has nothing to do on a change")
        if dry:
            record = Record(state, StateOutcome.CHANGED, None, "It would react to the change of what it watches")
            record.changes = {"watch": list(changed)}
            return record
        arguments, _ = self._fill_references(state)
        context = self._contexts(state, dry, changed)
        watch = function.watch
        result = yield from _call_function(function, lambda: watch(arguments, context))
        return record_of_result(state, (yield from _settle_command(function, arguments, result)))


def _call_function(function: StateFunction, call: Callable[[], Any]) -> Generator[Request, Any, Any]:
    return call() if function.inline else (yield BlockingCall(call))


def _settle_command(
    function: StateFunction, arguments: Arguments, result: Union[Result, Command]
) -> Generator[Request, Any, Result]:
    if isinstance(result, Result):
        return result
    if function.settle is None:
        raise TypeError(f"{function.name} returns a command but has no settle")
    finished: Finished = yield result
    return function.settle(arguments, finished)


def record_of_check(state: State, check: Check) -> Record:
    """Return the record of a state that was only checked."""
    if check.changes:
        record = Record(state, StateOutcome.CHANGED, None, check.comment)
        record.changes = check.changes
    else:
        record = Record(state, StateOutcome.UNCHANGED, True, check.comment)
    record.outputs = check.outputs
    return record


def record_of_result(state: State, result: Result) -> Record:
    """Return the record of a state that was applied, successfully or not."""
    outcome = StateOutcome.CHANGED if result.changes else StateOutcome.UNCHANGED
    if not result.ok:
        outcome = StateOutcome.FAILED
    record = Record(state, outcome, bool(result.ok), result.comment)
    record.changes = result.changes
    record.outputs = result.outputs
    return record


def _exception_comment(error: Exception) -> str:
    trace = error.__traceback__
    location = ""
    while trace is not None:
        location = f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"An exception occurred in this state: {type(error).__name__}: {error} ({location})"
