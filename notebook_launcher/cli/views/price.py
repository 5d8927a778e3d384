"""The price before a launch, as a sentence; and another one where it is more than is left."""

from __future__ import annotations

from notebook_launcher.core.events import launch as events


def price_words(event: events.Priced) -> str:
    """Return what it costs at most, and what is left of the account where that was told."""
    account = f"account {event.account}" if event.account else "your account"
    left = "" if event.left is None else f" ({account}: {_number(event.left)} left)"
    return f"It costs at most {event.reckoning} = {_number(event.cost)} {event.unit}{left}"


def price_warning(event: events.Priced) -> str:
    """Return what must be said where the price is more than is left; nothing where it is not."""
    if event.left is None or event.cost <= event.left:
        return ""
    of = f" of {event.account}" if event.account else ""
    return (
        f"That is more than is left{of}: {_number(event.cost)} against {_number(event.left)} {event.unit}. "
        "The cluster may refuse the job, or end it."
    )


def _number(number: float) -> str:
    """Return a number with its thousands apart: ``1 840``, ``25.6``, ``0.35``."""
    if abs(number) >= 100:
        return f"{number:,.0f}".replace(",", " ")
    return f"{number:.2f}".rstrip("0").rstrip(".") if abs(number) < 10 else f"{number:.1f}".removesuffix(".0")
