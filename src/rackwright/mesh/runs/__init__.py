"""States on many servers: a signed request, a task for each target, its execution, events and end.

Used by the agent and, through the control socket, by people. It must never know the control plane.
"""
