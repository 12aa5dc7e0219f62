"""References in user-data to secrets: `${secret:NAME}` stands for the secret NAME of `provisioner-secrets`.

What is stored and shown has the reference. The secret takes its place when the seed is made that is sent to the machine
over SSH. In a `#cloud-config` that is done within values, so whatever a secret holds, it stays one value.
"""

import re
from collections.abc import Iterator, Mapping

from rackwright.domain.installs.cloud_init.user_data import UserData
from rackwright.domain.installs.cloud_init.yaml_document import Plain

REFERENCE = re.compile(r"\$\{secret:((?:(?!\$\{secret:)[^}\n])*)\}")
"""A beginning within another is one of its own: else each would be searched to the end of a line full of them."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def find_references(data: UserData) -> Iterator[tuple[str, int]]:
    """Yield the name of each reference that counts, with its line."""
    if data.document is None:
        for number, line in enumerate(data.text.splitlines(), start=1):
            for match in REFERENCE.finditer(line):
                yield match.group(1), number
        return
    for value in data.document.walk():
        for text in _texts_of(value.value):
            for match in REFERENCE.finditer(text):
                yield match.group(1), value.line


def _texts_of(value: object) -> Iterator[str]:
    """Yield the texts of one value of a document: its own if it is text, its keys if it is a mapping."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value


def put_secrets(text: str, secrets: Mapping[str, str]) -> str:
    """Return a text with secrets in place of their references; a reference to none stays."""
    return REFERENCE.sub(lambda match: secrets.get(match.group(1), match.group(0)), text)


def put_secrets_in(value: Plain, secrets: Mapping[str, str]) -> Plain:
    """Return a document with secrets in place of their references in its values."""
    if isinstance(value, str):
        return put_secrets(value, secrets)
    if isinstance(value, dict):
        return {key: put_secrets_in(inner, secrets) for key, inner in value.items()}
    if isinstance(value, list):
        return [put_secrets_in(inner, secrets) for inner in value]
    return value
