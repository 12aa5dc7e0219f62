"""What several state modules share: whole-file writes, running programs, templates, versions. No state functions."""
