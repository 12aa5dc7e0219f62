"""What machines boot and what is put on their disks: built from a distribution's own packages, kept on a shelf."""
