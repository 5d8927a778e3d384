"""The price before a launch, as a sentence; and another one where it is more than is left."""

from __future__ import annotations

from notebook_launcher.core import events


def price_text(event: events.CostEstimate) -> str:
    """Return what it costs at most, and what is left of the account, where that is known."""
    account = f"account {event.account}" if event.account else "your account"
    left = "" if event.balance is None else f" ({account}: {_number(event.balance)} left)"
    return f"Estimated cost: at most {event.calculation} = {_number(event.cost)} {event.unit}{left}"


def price_warning(event: events.CostEstimate) -> str:
    """Return what must be said where the price is more than is left; nothing where it is not."""
    if event.balance is None or event.cost <= event.balance:
        return ""
    of = f" of {event.account}" if event.account else ""
    return (
        f"That is more than is left{of}: {_number(event.cost)} against {_number(event.balance)} {event.unit}. "
        "The cluster may refuse the job, or end it."
    )


def _number(number: float) -> str:
    """Return a number with its thousands apart: ``1 840``, ``25.6``, ``0.35``."""
    if abs(number) >= 100:
        return f"{number:,.0f}".replace(",", " ")
    return f"{number:.2f}".rstrip("0").rstrip(".") if abs(number) < 10 else f"{number:.1f}".removesuffix(".0")
