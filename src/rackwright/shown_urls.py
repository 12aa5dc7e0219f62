"""URLs as they may be shown: in errors, logs and tables, where nobody expects a password to stand."""

HIDDEN = "***"
_SECRET_WORDS = ("password", "passwd", "secret", "token", "key")


def shown_url(url: str) -> str:
    """Return a URL, or what was meant to be one, without user, password and whatever else in it is secret.

    It is for text that could not be read as a URL too, so everything up to the last @ goes, wherever that stands.
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        scheme, rest = "", url
    rest, question, query = rest.partition("?")
    if "@" in query:  # a password with a ? in it
        rest, question, query = rest + question + query, "", ""
    if "@" in rest:
        rest = f"{HIDDEN}@{rest.rpartition('@')[2]}"
    shown = scheme + mark + rest + question + "&".join(map(_shown_part, query.split("&")))
    return " ".join(map(_shown_part, shown.split(" ")))


def _shown_part(text: str) -> str:
    """`name=value`, with the value hidden if the name says that it is secret."""
    name, equals, _ = text.partition("=")
    secret = equals and any(name.lower().endswith(word) for word in _SECRET_WORDS)
    return f"{name}={HIDDEN}" if secret else text
