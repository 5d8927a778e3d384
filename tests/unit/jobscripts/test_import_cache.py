"""import_cache.py: what JupyterLab imports from an image is kept, and used where nothing can differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.core.package_data import job_script

# Loads it as quick_start.py does. The folder is taken for an image, which nobody can write to, if `image` says so.
LOAD = """
import json, os, subprocess, sys, tokenize
ours = {"__file__": sys.argv[1], "__name__": "import_cache"}
exec(open(sys.argv[1]).read(), ours)
folder, file, image, code = sys.argv[2:]
sys.path[:] = [folder]
class Flags: f_flag = os.ST_RDONLY if image == "yes" else 0
os.statvfs = lambda _folder: Flags
ours["IMAGE"] = globals().get("IMAGE", [folder])
imports = ours["Imports"](file)
exec(code)
"""
SHOW = """
import pack.part, plain
def seen(module):
    spec = module.__spec__
    return [module.__file__, module.__cached__, module.__package__, getattr(module, "__path__", None), spec.name,
            spec.origin, spec.submodule_search_locations, type(spec.loader).__name__, spec.loader.get_source(spec.name),
            spec.loader.get_code(spec.name).co_filename, module.value]
modules = [seen(module) for module in (pack, pack.part, plain)]
used = imports.finder is not None
imports.end()
print(json.dumps([used, modules, [getattr(finder, "__name__", "ours") for finder in sys.meta_path]]))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with modules."""
    folder = tmp_path / "installed"
    (folder / "pack").mkdir(parents=True)
    (folder / "pack" / "__init__.py").write_text("value = 'package'\n")
    (folder / "pack" / "part.py").write_text("def value(): raise ValueError\nvalue = value.__code__.co_filename\n")
    (folder / "plain.py").write_text("value = __name__\n")
    return folder


def start(folder: Path, code: str = SHOW, *, image: bool = True, before: str = "") -> Any:
    """Start Python as a JupyterLab starts, with what an earlier start in this folder has kept."""
    argv = [sys.executable, "-S", "-c", before + LOAD, str(job_script("import_cache.py")), str(folder)]
    argv += [str(kept(folder)), "yes" if image else "no", code]
    kept(folder).parent.mkdir(exist_ok=True)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def kept(folder: Path) -> Path:
    return folder.parent / "imports" / "5-100-7-8"


def used(folder: Path, **how: Any) -> bool:
    return bool(start(folder, **how)[0])


def test_the_second_start_imports_what_the_first_one_kept_and_its_modules_are_the_same(installed: Path) -> None:
    first = start(installed)
    (installed / "plain.py").write_text("value = 'from the file'\n")  # which can't be, in an image: so it tells
    second = start(installed)
    assert (first[0], second[0]) == (False, True)
    source = second[1][2].pop(8), first[1][2].pop(8)
    assert source == ("value = 'from the file'\n", "value = __name__\n")
    assert second[1] == first[1]
    assert first[1][1][-1] == str(installed / "pack" / "part.py")
    assert second[2] == first[2] == ["BuiltinImporter", "FrozenImporter", "PathFinder"]
    assert kept(installed).stat().st_mode & 0o777 == 0o600


def test_patterns_are_compiled_as_kept_until_the_server_answers(installed: Path) -> None:
    """What is kept matches as what Python compiles; what is not kept, or wrong, is compiled by Python."""
    code = """
import re
compiler = sys.modules.get("re._compiler") or sys.modules["sre_compile"]
parser, parsed = getattr(compiler, "_parser", None) or compiler.sre_parse, []
parse, compiles = parser.parse, compiler.compile
parser.parse = lambda pattern, *flags: [parsed.append(pattern), parse(pattern, *flags)][1]
class Text(str): pass
found = [re.compile("(?P<year>[0-9]{4})-[a-\u00e9]", re.I).match("2026-\u00c9").groupdict(),
         re.compile(b"(?P<year>[0-9]{4})-[a-z]").sub(rb"\\g<year>", b"2026-b").decode(),
         re.compile("(?P<year>[0-9]{4})-[a-z]").pattern, re.compile(Text("of a class of its own")).pattern]
try: re.compile("[")
except re.error as problem: found.append(str(problem))
import re as again
imports.end()
print(json.dumps([imports.finder is None, found, [str(each) for each in parsed], compiler.compile is not compiles]))
"""
    first, second = (start(installed, code) for _ in range(2))
    assert first[:2] == second[:2] == [True, first[1]]
    assert len(first[2]) == 5
    assert second[2] == ["of a class of its own", "["]
    assert first[3] and second[3], "Python's own again"


def test_nothing_is_kept_of_what_somebody_could_write(installed: Path) -> None:
    start(installed, image=False)
    assert not list(kept(installed).parent.iterdir())
    start(installed)
    assert not used(installed, image=False), "nor used there"
    assert not used(installed, before="IMAGE = ['/proc']\n"), "another read-only file system than the image's"


def test_no_half_of_it_stays_where_the_home_is_full(installed: Path) -> None:
    full = "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    start(installed, before=f"import resource, sys\nsys.dont_write_bytecode = True\n{full}")
    assert not list(kept(installed).parent.iterdir())


@pytest.mark.parametrize(
    "change",
    [
        "import sys; sys.version += 'x'\n",
        "import sys; sys.meta_path.insert(0, type('Hook', (), {'find_spec': lambda *_: None})())\n",
        "import os; os.geteuid = lambda: 12345\n",
    ],
)
def test_it_is_not_used_by_another_python_or_user_or_beside_other_finders(installed: Path, change: str) -> None:
    start(installed)
    assert used(installed)
    assert not used(installed, before=change)


def test_it_is_not_used_where_others_could_have_written_it_or_it_is_damaged(installed: Path) -> None:
    start(installed)
    kept(installed).chmod(0o620)
    assert not used(installed)
    kept(installed).chmod(0o600)
    whole = kept(installed).read_bytes()
    for damaged in (b"", whole[:100], whole[:-1], b"x" * len(whole)):
        kept(installed).write_bytes(damaged)
        assert not used(installed)
    kept(installed).write_bytes(whole[:-60] + b"\xff" * 60)
    assert start(installed)[1][2][-1] == "plain", "a module that is damaged there comes from its own file"


def test_a_module_that_is_found_sooner_elsewhere_comes_from_there(installed: Path, tmp_path: Path) -> None:
    start(installed)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "plain.py").write_text("value = 'mine'\n")
    code = f"sys.path.insert(0, {str(tmp_path / 'mine')!r})\nimport plain, pack\n"
    code += "print(json.dumps([imports.finder is not None, plain.value, pack.value]))"
    assert start(installed, code) == [True, "mine", "package"]


def test_those_of_images_that_were_not_used_for_long_go(installed: Path) -> None:
    folder = kept(installed).parent
    folder.mkdir()
    for number in range(8):
        (folder / f"old-{number}").touch()
        os.utime(folder / f"old-{number}", (number, number))
    start(installed)
    left = [f"old-{number}" for number in range(3, 8)]
    assert sorted(path.name for path in folder.iterdir()) == [kept(installed).name, *left]


def test_the_job_names_a_file_for_an_image_of_a_launchers_session_alone(tmp_path: Path) -> None:
    session = tmp_path / "sessions" / "20261121-014455-k3f7"
    code = 'source "$0/lib.sh"; source "$0/enter.sh"; want_program=jupyterlab want_fast_start=yes want_binds=(); '
    code += '"$@"; name_imports; printf "%s %s" "${NBL_IMPORTS-}" "${want_binds[*]}"'

    def named(*change: str, folder: Path = session) -> str:
        (folder / "runtime").mkdir(parents=True, exist_ok=True)
        (folder / "runtime" / "image").write_text("5-100-7-8\n")
        env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home"), "NBL_SESSION_DIR": str(folder)}
        argv = ["bash", "-c", code, str(job_script("lib.sh").parent), *(change or [":"])]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=True).stdout

    place = session.parent / ".imports"
    assert named() == f"{place}/5-100-7-8 {place}"
    assert place.stat().st_mode & 0o777 == 0o700
    assert named("eval", "want_program=notebook") == f"{place}/5-100-7-8-run {place}"
    assert named("eval", "want_fast_start=no") == " "
    assert named("rm", f"{session}/runtime/image") == " ", "it runs in no image, or a folder"
    assert named(folder=tmp_path / "mine" / "by-hand") == " "
    place.rmdir()
    place.symlink_to(tmp_path)
    assert named() == " "
