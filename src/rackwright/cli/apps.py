"""Makes the Typer application of a noun, so that all nouns look alike and none starts slowly.

Help and errors are plain text: drawing them in boxes would load a library for terminals before anything is printed.
"""

import typer


def make_app(help: str | None = None, *, no_args_is_help: bool = True) -> typer.Typer:
    """Return an application for a noun whose verbs are commands. It has no completion: that is a noun of its own."""
    return typer.Typer(
        help=help,
        no_args_is_help=no_args_is_help,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
