"""Reaching a machine outside the graph: power, boot device, a look at it. Every hammer has the shape of `base.Hammer`."""
