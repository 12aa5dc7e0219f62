"""Package managers behind one shape: apt, dnf and PackageKit, and the run's one view of what is installed."""

from .base import Available, Backend, Inventory, Options, Packages, Target, packages

__all__ = ["Available", "Backend", "Inventory", "Options", "Packages", "Target", "packages"]
