"""`python -m rjemu`."""

import sys

from rjemu.cli.main import main

sys.exit(main())
