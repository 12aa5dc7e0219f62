"""What happened, as stored: the outbox of events, webhooks that follow it, and answers to repeated requests.

Used by every change that is worth telling, and by the API. It must never send anything anywhere.
"""
