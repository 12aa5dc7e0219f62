"""Reaching a machine outside the graph: power, boot device, a look. Every hammer has the shape of `base.Hammer`."""
