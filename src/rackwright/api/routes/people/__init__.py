"""Routes about people: logging in, who the caller is, tokens, and users with their grants.

Used by `api.app`. They must never store a password in plain text.
"""
