"""Who is asking, and what they may do: authentication, passwords, rate limits, and the record of refusals.

Used by the routes. It must never know a resource.
"""
