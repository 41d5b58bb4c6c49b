"""``python -m streamsink``: the command line, where the script ``streamsink`` is not installed."""

from streamsink.cli.main import main

if __name__ == "__main__":
    main()
