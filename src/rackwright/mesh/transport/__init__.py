"""Messages between members: TLS 1.3 with both sides proven, a little HTTP, and one kept connection a pair.

Used by the agent. It must never know what a message means.
"""
