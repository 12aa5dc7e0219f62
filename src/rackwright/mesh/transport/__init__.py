"""The transport of messages between members: TLS 1.3 with both sides proven, a little HTTP, one lasting link a pair.

Used by the agent. It must never know what a message means.
"""
