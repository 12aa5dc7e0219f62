"""Service managers behind one interface: systemd, System V scripts, and plain processes with a pidfile."""

from .base import Manager, Status, manager_for

__all__ = ["Manager", "Status", "manager_for"]
