"""A person at a first launch, as a double."""

from __future__ import annotations

from pathlib import Path

from notebook_launcher.core import events


class FirstUser:
    """A view and prompts in one: a person with these answers; without any, nobody can be asked."""

    def __init__(self, *answers: str | None) -> None:
        self._answers = list(answers)
        self.asks = bool(answers)
        self.questions: list[str] = []
        self.shown: list[events.Event] = []

    def show(self, event: events.Event) -> None:
        self.shown.append(event)

    def line(self, text: str) -> str | None:
        self.questions.append(text)
        assert self._answers, f"not expected: {text}"
        return self._answers.pop(0)

    @property
    def said(self) -> str:
        return "\n".join(event.text for event in self.shown if isinstance(event, events.Note))

    @property
    def kept(self) -> list[str]:
        return [Path(event.path).name for event in self.shown if isinstance(event, events.Saved)]
