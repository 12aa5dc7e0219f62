"""Reads a password from a person: asked for, or on standard input.

Never as an argument: everybody on a host can read the arguments of its processes.
"""

import getpass
import sys
from typing import Annotated

import typer

PasswordStdin = Annotated[bool, typer.Option(help="Read the password from standard input.")]


def read_password(question: str, from_stdin: bool) -> str:
    """Return the password that a person types, or the first line of standard input."""
    return sys.stdin.readline().rstrip("\n") if from_stdin else getpass.getpass(question)
