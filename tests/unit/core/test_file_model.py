"""``core/file_model.py``: the base of the models that check what a file says."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from pydantic.plugin import _loader

from notebook_launcher.core.file_model import FileModel


def test_it_is_frozen_and_asks_no_package_for_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_loader, "entry_points", lambda **_asked: pytest.fail("looked for plugins"))

    class Answer(FileModel):
        number: int

    answer = Answer.model_validate({"number": 5})
    with pytest.raises(ValidationError, match="frozen"):
        answer.number = 6
