"""Reports the contents of an environment as lines of JSON, run by its own Python; see `launch-notebook env check`.

Needs only Python 3.6 or newer: an environment may be old, and may be broken.
"""

import json
import sys
import time
from pathlib import Path

try:
    from importlib import metadata
except ImportError:
    metadata = None

# the prefix, chosen by the launcher, of the lines for it: other code prints here as well
MARK = sys.argv[2]

PROBE_CODE = """
import importlib.util, json, os
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
found = {}
if importlib.util.find_spec("torch"):
    try:
        import torch
        cuda = torch.version.cuda
        found["torch"] = torch.__version__ + (", for CUDA " + cuda if cuda else ", for CPUs")
        found["gpus"] = torch.cuda.device_count()
    except Exception as error:
        found["torch"] = "cannot be imported: " + str(error)[:200]
if importlib.util.find_spec("tensorflow"):
    try:
        import tensorflow
        words = {"0": "off", "1": "on"}.get(os.environ.get("TF_ENABLE_ONEDNN_OPTS"), "as the CPU suggests")
        found["tensorflow"] = tensorflow.__version__ + ", oneDNN " + words
        found["gpus"] = len(tensorflow.config.list_physical_devices("GPU"))
    except Exception as error:
        found["tensorflow"] = "cannot be imported: " + str(error)[:200]
print("nbl-kernel " + json.dumps(found))
"""


def tell(**values):
    """Print a line of JSON for the launcher."""
    print(MARK + " " + json.dumps(values), flush=True)


def version(name):
    """Return a package's version; ``None`` if it is not installed."""
    try:
        return metadata.version(name)
    except Exception:
        return None


def check():
    """Report the versions, start a kernel, and import the frameworks that use a GPU in it."""
    tell(jupyterlab=version("jupyterlab"), ipykernel=version("ipykernel"))
    try:
        from jupyter_client.manager import start_new_kernel
    except ImportError:
        tell(kernel="There is no jupyter_client, which starts kernels.")
        return
    began, lines = time.time(), []
    try:
        manager, client = start_new_kernel(startup_timeout=60)
    except Exception as error:
        tell(kernel="It did not start: " + str(error)[:300])
        return
    try:
        tell(kernel="ok", kernel_seconds=round(time.time() - began, 1))
        client.execute_interactive(
            PROBE_CODE, timeout=180, output_hook=lambda message: lines.append(message["content"].get("text", ""))
        )
        for line in "".join(lines).splitlines():
            if line.startswith("nbl-kernel "):
                tell(**json.loads(line[len("nbl-kernel ") :]))
    except Exception as error:
        tell(kernel="It does not answer: " + (str(error) or type(error).__name__)[:300])
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def freeze():
    """Report the packages with their versions: conda's from its records, all others by their pip names."""
    conda, channels = [], []
    for file in sorted(Path(sys.prefix, "conda-meta").glob("*.json")):
        note = json.loads(file.read_text(encoding="utf-8"))
        conda.append("{name}={version}".format(**note))
        channels.append(note.get("channel", "").rstrip("/").rpartition("/")[0].rpartition("/")[2] or "conda-forge")
    packages = {}
    for package in metadata.distributions() if metadata else []:
        of_conda = (package.read_text("INSTALLER") or "").strip() == "conda"
        if package.metadata["Name"] and not of_conda:
            packages.setdefault(package.metadata["Name"].lower(), (package.metadata["Name"], package.version))
    frozen = ["{}=={}".format(*packages[key]) for key in sorted(packages)]
    tell(packages=frozen, conda=conda, channels=sorted(set(channels)))


def main():
    """Report what is asked for, and that the report is complete."""
    tell(python=".".join(map(str, sys.version_info[:3])), prefix=sys.prefix)
    {"check": check, "freeze": freeze}[sys.argv[1]]()
    tell(end=True)


main()
