"""People as stored: users, their grants, tokens and sessions.

Used by the API's authentication. It must never see a password in plain text.
"""
