"""Where the panel is brought to; what it does there is tested in a browser, in ``test_panel_page``."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from traitlets.config import Config

from tests.unit.jobscripts.written_usage import loaded

loaded("panel_facts")
loaded("panel_saving")
panel = loaded("panel")


@pytest.mark.parametrize("program", ["LabApp", "JupyterNotebookApp"])
def test_jupyterlab_and_notebook_7_load_it(tmp_path: Path, program: str) -> None:
    """Notebook 7 may be in the same environment; a page of it that did not save would count as silent."""
    (tmp_path / "runtime").mkdir()
    for name in ("panel_view.js", "panel_apps.js", "panel.js"):
        (tmp_path / name).write_text(f"// {name}\n")
    config = Config({program: {"extra_labextensions_path": ["/mine"]}})
    panel.bring(SimpleNamespace(init_shutdown_no_activity=lambda: None), config, str(tmp_path))
    place = str(tmp_path / "runtime" / "labextensions")
    assert config[program].extra_labextensions_path == ["/mine", place]
    script = Path(place, panel.EXTENSION, panel.SCRIPT).read_text()
    assert script.index("// panel_view.js") < script.index("// panel.js")
