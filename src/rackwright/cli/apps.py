"""How every noun's application is made, so that all of them look alike and none starts slowly.

Help and mistakes are plain text: drawing them in boxes would load a library for terminals before anything is said.
"""

import typer


def make_app(help: str | None = None, *, no_args_is_help: bool = True) -> typer.Typer:
    """A noun whose verbs are commands. Completion is a noun of its own."""
    return typer.Typer(
        help=help,
        no_args_is_help=no_args_is_help,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
