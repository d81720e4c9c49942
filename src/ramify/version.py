"""Version of the library."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("ramify")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"
