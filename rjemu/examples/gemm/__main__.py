"""`python -m rjemu.examples.gemm`: numpy on one thread, as rjemu is, so that the two can be compared."""

import os
import sys

# The libraries below numpy read these once, when numpy is imported.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ[variable] = "1"

from rjemu.examples.gemm.run import main  # noqa: E402

sys.exit(main())
