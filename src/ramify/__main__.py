"""Entry point of ``python -m ramify``."""

import sys

from ramify.cli.main import main

sys.exit(main())
