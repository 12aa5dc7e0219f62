"""Hides passwords and other secrets in URLs that are shown in errors, logs and tables."""

HIDDEN = "***"
_SECRET_WORDS = ("password", "passwd", "secret", "token", "key")


def shown_url(url: str) -> str:
    """Return a URL, or text that was meant to be one, without user, password and other secrets.

    The text may be one that could not be read as a URL, so everything up to the last @ is hidden, wherever that is.
    """
    scheme, separator, remainder = url.partition("://")
    if not separator:
        scheme, remainder = "", url
    remainder, question, query = remainder.partition("?")
    if "@" in query:  # a password with a ? in it
        remainder, question, query = remainder + question + query, "", ""
    if "@" in remainder:
        remainder = f"{HIDDEN}@{remainder.rpartition('@')[2]}"
    shown = scheme + separator + remainder + question + "&".join(map(_shown_part, query.split("&")))
    return " ".join(map(_shown_part, shown.split(" ")))


def _shown_part(text: str) -> str:
    """Return `name=value`, with the value hidden if the name says that it is secret."""
    name, equals, _ = text.partition("=")
    is_secret = equals and any(name.lower().endswith(word) for word in _SECRET_WORDS)
    return f"{name}={HIDDEN}" if is_secret else text
