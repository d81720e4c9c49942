"""Training by tasks gives the model of one process, bit for bit, for any engine and any number of tasks."""

from __future__ import annotations

import pytest
from distributed.corpus import digest, samples, write_files

import ramify
