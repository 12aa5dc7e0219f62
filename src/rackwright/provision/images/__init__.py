"""Images that machines boot and that are put on their disks: built from a distribution's packages, kept on a shelf."""
