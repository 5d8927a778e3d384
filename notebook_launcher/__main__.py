"""``python -m notebook_launcher`` is ``launch-notebook``."""

from notebook_launcher.cli import main

if __name__ == "__main__":
    main()
