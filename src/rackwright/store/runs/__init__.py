"""Runs of noderoles: what can start, claiming it, settling it, its log, and the upkeep of leases and slots.

Used by the annealer and the API. It must never know how a jig does its work.
"""
