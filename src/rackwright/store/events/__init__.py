"""Events as stored: the outbox, webhooks that follow it, and responses kept for repeated requests.

Used by every change that has an event, and by the API. It must never send anything anywhere.
"""
