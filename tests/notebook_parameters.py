"""Parameters with which each notebook runs within seconds on two cores, only for tests.

Measurements with them are correct but useless: real ones need the notebooks' default parameters.
"""

from __future__ import annotations

SMALL: dict[str, dict[str, object]] = {
    "hello": {},
    "beginner-tensorflow": {"EPOCHS": 3, "IMAGES": 2000},
    "game-of-life": {"SIZE": 256, "STEPS": 5, "BUDGET": 0.5, "TORCH_COMPILE": False},  # compiling takes up to a minute
    "core-scaling": {"CORES": "1,2", "SIZE": 256, "BUDGET": 0.5},
    "compare": {},
    "beginner-torch": {"EPOCHS": 2, "IMAGES": 1000, "BATCH": 100},
    "resnet-torch": {"EPOCHS": 2, "IMAGES": 400, "IMAGE": 16, "WIDTH": 8, "BLOCKS": 1},
    "gpu-usage": {},  # draws the recording that is beside it
    # the processes import PyTorch, which takes longer than everything else
    "scaling": {
        "PROCESSES": "1,2",
        "SCALING": "strong",
        "HIDDEN": 64,
        "BATCH": 64,
        "IMAGES": 640,
        "EPOCHS": 2,
        "ROUNDS": 1,
    },
    "cpu-vs-gpu": {"SIZES": "32,128,512", "WIDTHS": "32,128", "BUDGET": 0.3},
}

# The libraries of which a notebook needs one. Other notebooks need only numpy and matplotlib.
NEEDS: dict[str, tuple[str, ...]] = {
    "beginner-tensorflow": ("tensorflow",),
    "game-of-life": ("tensorflow", "torch"),
    "beginner-torch": ("torch",),
    "resnet-torch": ("torch",),
    "scaling": ("torch",),
}
