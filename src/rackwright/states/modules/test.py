"""States that only pretend: for trying out requisites, for tests, and as the template for new modules.

Each function is the smallest example of the shape in `..module`: `check` says what would change, `apply` does it.
"""

from __future__ import annotations

from typing import Any, Dict, List

from ..module import Argument, Arguments, Check, Context, Result, StateError, StateFunction

PRETENDED: Dict[str, Any] = {"testing": {"old": "Unchanged", "new": "Something pretended to change"}}

COMMENT = Argument("comment", "str", "What to say in place of the usual comment.")


def _watch(arguments: Arguments, context: Context) -> Result:
    comment = arguments.get("comment") or "Watch statement fired."
    return Result(True, {"Requisites with changes": list(context.changed)}, comment)


def _nothing(arguments: Arguments, context: Context) -> Check:
    return Check({}, arguments.get("comment") or "Success!")


def _pretend(arguments: Arguments, context: Context) -> Check:
    return Check(PRETENDED, "If we weren't testing, this would be successful with changes")


def _pretend_failure(arguments: Arguments, context: Context) -> Check:
    return Check(PRETENDED, "If we weren't testing, this would be failed with changes")


def _fail(arguments: Arguments, context: Context) -> Check:
    if context.test:
        raise StateError("If we weren't testing, this would be a failure!")
    raise StateError(arguments.get("comment") or "Failure!")


def _unchanged(arguments: Arguments, check: Check, context: Context) -> Result:
    return Result(True, {}, check.comment)


def _succeed(arguments: Arguments, check: Check, context: Context) -> Result:
    return Result(True, check.changes, arguments.get("comment") or "Success!")


def _fail_with_changes(arguments: Arguments, check: Check, context: Context) -> Result:
    return Result(False, check.changes, arguments.get("comment") or "Failure!")


def _configured(arguments: Arguments, context: Context) -> Check:
    comment = arguments["comment"] or ("This is a test" if context.test else "")
    fails_in_test = context.test and arguments["allow_test_mode_failure"]
    fails_unchanged = not context.test and not arguments["changes"]
    if not arguments["result"] and (fails_in_test or fails_unchanged):
        raise StateError(comment)
    return Check(PRETENDED if arguments["changes"] else {}, comment)


def _configured_apply(arguments: Arguments, check: Check, context: Context) -> Result:
    return Result(arguments["result"], check.changes, arguments["comment"] or "")


def _notify(arguments: Arguments, context: Context) -> Check:
    return Check({}, arguments["text"])


def _validate_notify(arguments: Arguments) -> List[str]:
    return [] if arguments["text"].strip() else ["show_notification needs a text that is not empty"]


FUNCTIONS = (
    StateFunction("nop", "Do nothing, and succeed.", (COMMENT,), _nothing, _unchanged, _watch, inline=True),
    StateFunction(
        "succeed_without_changes", "Succeed without changes.", (COMMENT,), _nothing, _unchanged, _watch, inline=True
    ),
    StateFunction(
        "succeed_with_changes", "Pretend to change something.", (COMMENT,), _pretend, _succeed, _watch, inline=True
    ),
    StateFunction("fail_without_changes", "Fail without changes.", (COMMENT,), _fail, _unchanged, _watch, inline=True),
    StateFunction(
        "fail_with_changes",
        "Pretend to change something, and fail.",
        (COMMENT,),
        _pretend_failure,
        _fail_with_changes,
        _watch,
        inline=True,
    ),
    StateFunction(
        "configurable_test_state",
        "Succeed or fail, with changes or without, as the arguments say.",
        (
            Argument("changes", "bool", "Pretend to change something.", default=True),
            Argument("result", "bool", "Succeed.", default=True),
            COMMENT,
            Argument("allow_test_mode_failure", "bool", "Fail in a dry run too.", default=False),
        ),
        _configured,
        _configured_apply,
        _watch,
        inline=True,
    ),
    StateFunction(
        "show_notification",
        "Say something in the results.",
        (Argument("text", "str", "What to say.", required=True),),
        _notify,
        _unchanged,
        _watch,
        _validate_notify,
        inline=True,
    ),
)
