"""Staging memory: what a daemon and one client both have mapped, and copies go through.

It has no name; the client gets its descriptor over the socket. Its size is sealed, so that a client cannot shorten it under
the daemon, whose accesses would then kill it.
"""

from __future__ import annotations

import fcntl
import mmap
import os

import numpy as np

from rjemu.errors import ProtocolError

STAGING_BYTES = 4 << 20
"""Larger copies go in pieces; a piece should stay in the caches between the two processes."""


class Staging:
    """`bytes` is the memory as uint8 [STAGING_BYTES]."""

    def __init__(self, descriptor: int) -> None:
        """Maps what the descriptor refers to."""
        self.descriptor = descriptor
        self.bytes = np.frombuffer(mmap.mmap(descriptor, STAGING_BYTES), np.uint8)

    @classmethod
    def create(cls) -> Staging:
        descriptor = os.memfd_create("rjemu-staging", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, STAGING_BYTES)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            return cls(descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def attach(cls, descriptor: int | None) -> Staging:
        """What the daemon sent; ProtocolError if it is no staging memory."""
        if descriptor is None:
            raise ProtocolError("the daemon sent no staging memory")
        try:
            return cls(descriptor)
        except (OSError, ValueError) as error:
            raise ProtocolError(f"the daemon's staging memory cannot be mapped: {error}") from error
        finally:
            os.close(descriptor)

    def close_descriptor(self) -> None:
        """Once the client has its own; the mapping ends with the last use of `bytes`."""
        os.close(self.descriptor)
