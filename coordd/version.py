"""The version, once: the package's metadata is read from here, and so is what the daemon answers."""

VERSION = "0.1.0"
