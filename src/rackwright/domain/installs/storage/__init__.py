"""The disks of an installed system: layouts as people write them, resolved on the disks of one machine. Pure.

Used by installs, which freeze the steps that are resolved here into their attempt. It must never know the database, nor
touch a disk.
"""
