"""What a request will cost, before it is queued: by the profile's rates, and by what is left of the account. Pure."""

from __future__ import annotations

from notebook_launcher.profiles.models import Budget, Price
from notebook_launcher.request import Request


def estimate(price: Price, request: Request) -> float | None:
    """Return what the whole walltime costs at most, in ``price.unit``; ``None`` where a number is missing."""
    return None


def left_of(budget: Budget, account: str | None, output: str) -> float | None:
    """Return what is left of the account by the output of the budget command; ``None`` where it does not tell."""
    return None
