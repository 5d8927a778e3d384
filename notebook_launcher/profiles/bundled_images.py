"""The environments in images that users build from the launcher's own definition files."""

from __future__ import annotations

from notebook_launcher.profiles.models import ClusterProfile, Environment

#: a folder of the user's own, since one that others provide may not be writable
FOLDER = "~/.notebook-launcher/images"
_TORCH, _TENSORFLOW = f"{FOLDER}/torch.sif", f"{FOLDER}/tensorflow.sif"


def with_bundled_images(profile: ClusterProfile) -> ClusterProfile:
    """Return the profile with the launcher's environments if ``bundled_images`` is set; its own have precedence."""
    if not profile.bundled_images:
        return profile
    return profile.changed(environments={**_environments(), **profile.environments})


def is_made_by_user(environment: Environment) -> bool:
    """Return whether users build this image themselves, with ``image build``."""
    return bool(environment.container and environment.container.startswith(f"{FOLDER}/"))


def _environments() -> dict[str, Environment]:
    return {
        "torch": Environment(description="PyTorch, in your own image", container=_TORCH, definition="torch"),
        "tensorflow": _tensorflow("TensorFlow, in your own image"),
        "tf-gpu": _tensorflow("TensorFlow for GPUs, in your TensorFlow image", "tf-gpu"),
        "tf-mkl": _tensorflow("TensorFlow on the CPU with oneDNN, in your TensorFlow image", "tf-mkl"),
        "tf-pip": _tensorflow("TensorFlow on the CPU without oneDNN, in your TensorFlow image", "tf-pip"),
    }


def _tensorflow(description: str, venv: str | None = None) -> Environment:
    folder = f"/opt/envs/{venv}" if venv else None
    return Environment(description=description, container=_TENSORFLOW, definition="tensorflow", venv=folder)
