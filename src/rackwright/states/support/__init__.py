"""Helpers that several state modules share: file writes, running programs, templates, versions. No state functions."""
