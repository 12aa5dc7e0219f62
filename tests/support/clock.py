"""Time that passes when a test says so, for what the product does after a while.

A test of a deadline gives the product a deadline that no machine misses by being slow, waits until all that must come
before it has come, and then lets the time pass at once.
"""

import asyncio


def pass_time(seconds: float) -> None:
    """Put the clock of the running event loop forward: what is due by then is done next. It is never put back."""
    loop = asyncio.get_running_loop()
    before = loop.time
    vars(loop)["time"] = lambda: before() + seconds
