"""What things are and the rules they obey. Pure: no I/O, no clock, no database."""
