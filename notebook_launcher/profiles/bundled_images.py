"""The environments of images that are built, once, from the launcher's own definition files."""

from __future__ import annotations

from notebook_launcher.profiles.models import ClusterProfile, Environment

#: the user's own: a folder that others provide may not be writable
FOLDER = "~/.notebook-launcher/images"
_TORCH, _TENSORFLOW = f"{FOLDER}/torch.sif", f"{FOLDER}/tensorflow.sif"


def with_bundled_images(profile: ClusterProfile) -> ClusterProfile:
    """Return the profile with these environments, but for those of which it has its own, if it wants them."""
    if not profile.bundled_images:
        return profile
    return profile.changed(environments={**_environments(), **profile.environments})


def is_made_by_user(environment: Environment) -> bool:
    """Whether its image is one that each user makes, so that no environments of theirs are in it."""
    return bool(environment.container and environment.container.startswith(f"{FOLDER}/"))


def _environments() -> dict[str, Environment]:
    return {
        "torch": Environment(description="PyTorch, in an image of yours", container=_TORCH, definition="torch"),
        "tensorflow": _tensorflow("TensorFlow, in an image of yours"),
        "tf-gpu": _tensorflow("TensorFlow for GPUs, in the same image", "tf-gpu"),
        "tf-mkl": _tensorflow("TensorFlow on the CPU with oneDNN, in the same image", "tf-mkl"),
        "tf-pip": _tensorflow("TensorFlow on the CPU without oneDNN, in the same image", "tf-pip"),
    }


def _tensorflow(description: str, venv: str | None = None) -> Environment:
    folder = f"/opt/envs/{venv}" if venv else None
    return Environment(description=description, container=_TENSORFLOW, definition="tensorflow", venv=folder)
