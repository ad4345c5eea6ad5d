"""`python -m rjemu.examples.gemm`: numpy on one thread, as rjemu is, so that the two can be compared."""

import os
import sys

from rjemu.bench.timing import fair_environment

# The libraries below numpy read their settings once, when numpy is imported.
settings = fair_environment()
os.environ.clear()
os.environ.update(settings)

from rjemu.examples.gemm.run import main  # noqa: E402

sys.exit(main())
