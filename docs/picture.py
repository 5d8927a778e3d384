"""Draw docs/launch.svg: what a launch looks like, through the code that shows it (``python docs/picture.py``)."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

from rich.console import Console

from notebook_launcher.cli.views.pending_line import pending_parts
from notebook_launcher.cli.views.text_view import TextView
from notebook_launcher.core import events
from notebook_launcher.core.quantities import stopwatch

SESSION = "20261121-014455-k3f9"


def waited() -> str:
    """Return the waiting line of a Saturday morning."""
    now = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
    hours = {"estimate": now + timedelta(hours=2, minutes=20), "as_of": now - timedelta(minutes=2)}
    why = "3 jobs are ahead in partition gpu"
    times = {name: at.isoformat() for name, at in hours.items()}
    return "; ".join(pending_parts(events.Pending("4711", "PENDING", "Priority", why, ahead=3, **times), now))


def main() -> None:
    """Replay one launch into a picture; the token is made up."""
    console = Console(record=True, width=90, force_terminal=True)
    view = TextView(console, interactive=True)
    console.print("$ launch-notebook -t 2:00:00 --gpus 1", style="bold", highlight=False)
    directory = f"~/.notebook-launcher/sessions/{SESSION}"
    with view.paused():  # a line that updates in place would stay in a picture
        view.show(events.Submitted(SESSION, "4711", None, "slurm", "2 hours", directory))
    console.print(f"⠼ {stopwatch(151)}  {waited()}", highlight=False)
    url = "http://127.0.0.1:40683/lab?token=XX5KACylsE7DQIOCGC2ijBPg4ET2h516lX_X0wScKY8"
    view.show(events.Ready(SESSION, "4711", "gpu1", url, 40683, started_here=True))
    console.print()
    view.show(events.Ended(SESSION, "4711", "Job 4711 has ended."))
    drawn = console.export_svg(title="launch-notebook")
    # a picture in a README fetches nothing: the fonts of the reader's own system do
    drawn = re.sub(r"@font-face \{.*?\}\s*|<!-- Generated.*?-->\s*", "", drawn, flags=re.DOTALL)
    Path(__file__).with_name("launch.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
