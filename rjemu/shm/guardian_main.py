"""The guardian's program, run as a script by `rjemu.shm.guardian`: it imports nothing, so that it starts in milliseconds."""

import os
import sys


def main(directory: str, prefix: str) -> None:
    """Wait until nobody holds the other end of standard input any more, then unlink what starts with `prefix`."""
    os.read(0, 1)
    for name in os.listdir(directory):
        if name.startswith(prefix):
            try:  # noqa: SIM105  (to import contextlib takes longer than all the rest)
                os.unlink(os.path.join(directory, name))
            except FileNotFoundError:
                pass


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
