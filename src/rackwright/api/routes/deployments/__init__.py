"""Routes of deployments: what is proposed in them, its plan and commit, their roles, and what can be bound to them.

Used by `api.app`. They must never write SQL: the store does.
"""
