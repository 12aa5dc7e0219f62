"""`python -m rackwright` is `rackwright`."""

from rackwright.cli.main import main

if __name__ == "__main__":
    main()
