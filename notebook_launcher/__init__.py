"""One command that puts JupyterLab on a compute node of a cluster and opens it in your browser."""

__version__ = "0.1.0"
