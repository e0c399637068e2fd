"""Entry point: `python3 zygote.py` with the control socket on descriptor 3.

This file only makes the package importable. Its folder then leaves the module search path again, which begins with the
working directory as in any interactive Python.
"""

import sys

from atoll_context.zygote import main

sys.path[0] = ""
sys.exit(main())
