"""A machine that a daemon serves to other processes over a Unix socket (docs/daemon.md)."""

from rjemu.daemon.client import RemoteMachine, connect

__all__ = ["RemoteMachine", "connect"]
