"""Package managers behind one interface: apt, dnf and PackageKit, and the run's view of installed packages."""

from .base import Available, Backend, Inventory, Options, Packages, Target, packages

__all__ = ["Available", "Backend", "Inventory", "Options", "Packages", "Target", "packages"]
