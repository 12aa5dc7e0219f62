"""Who a caller is, and what the caller may do: authentication, cookies, passwords, rate limits and permissions.

Used by the routes. It must never know a resource.
"""
