"""Try a call again while a cluster is `Unavailable`."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import tenacity

from pulsar_fleet.cluster.errors import FleetError, Unavailable

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


async def retried(
    call: Callable[[], Awaitable[Answer]], *, seconds: float, answered_seconds: float | None, from_failure: bool
) -> Answer:
    """The answer of a call, which is made again while it is `Unavailable`, at growing intervals.

    :param seconds: for how long; then the last failure is raised.
    :param answered_seconds: for how long a failure that a broker answered is retried, if that is less.
    :param from_failure: whether the time counts from the first failure, and not from the beginning of the call.
    """
    began = time.monotonic()
    try:
        # Only failures go through tenacity, which needs a third of the CPU time of a call.
        return await call()
    except Unavailable as error:
        first = [error]
    if from_failure:
        began = time.monotonic()

    async def attempt() -> Answer:
        if first:
            raise first.pop()
        return await call()

    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(Unavailable),
        stop=_stop_after(began, seconds, answered_seconds),
        wait=tenacity.wait_exponential_jitter(multiplier=0.2, max=3.0, jitter=0.3),
        before_sleep=_log_retry,
        reraise=True,
    )
    answer: Answer = await retrying(attempt)
    return answer


def _stop_after(
    began: float, seconds: float, answered_seconds: float | None
) -> Callable[[tenacity.RetryCallState], bool]:
    """Give up after `seconds`, and after `answered_seconds` (if that is less) on a failure that a broker answered."""

    def stop(state: tenacity.RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        answered = isinstance(error, FleetError) and error.status is not None
        limit = seconds if answered_seconds is None or not answered else min(answered_seconds, seconds)
        return time.monotonic() - began >= limit

    return stop


def _log_retry(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.info("try %d failed, again in %.1f s: %s", state.attempt_number, state.upcoming_sleep, error)
