"""Texts on the price before a launch, and the warning if it exceeds the amount left."""

from __future__ import annotations

from notebook_launcher.core import events


def price_text(event: events.CostEstimate) -> str:
    """Return the maximum cost, and the amount left in the account if known."""
    account = f"account {event.account}" if event.account else "your account"
    left = "" if event.balance is None else f" ({account}: {_number(event.balance)} left)"
    return f"Estimated cost: at most {event.calculation} = {_number(event.cost)} {event.unit}{left}"


def price_warning(event: events.CostEstimate) -> str:
    """Return the warning that the price exceeds the amount left; "" if it does not."""
    if event.balance is None or event.cost <= event.balance:
        return ""
    of = f" of {event.account}" if event.account else ""
    return (
        f"That is more than is left{of}: {_number(event.cost)} against {_number(event.balance)} {event.unit}. "
        "The cluster may refuse the job, or end it."
    )


def _number(number: float) -> str:
    """Return a number with its thousands separated: ``1 840``, ``25.6``, ``0.35``."""
    if abs(number) >= 100:
        return f"{number:,.0f}".replace(",", " ")
    return f"{number:.2f}".rstrip("0").rstrip(".") if abs(number) < 10 else f"{number:.1f}".removesuffix(".0")
