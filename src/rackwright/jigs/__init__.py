"""How a noderole's work is done. Every jig has the shape of `base.Jig`; `noop` is the one to copy."""
