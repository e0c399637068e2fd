"""The Python code contexts of a sandbox.

A *zygote* imports the heavy libraries once and is then only forked; each *context* is such a fork and runs cells with
IPython's semantics. Read `zygote` first, then `context` and `cell`. The messages are those of
docs/design/0001-foundation.md; `wire` frames them.

Nothing in here may start a thread or keep a file open before the fork: both make every restore of a sandbox slower.
"""

from . import lean

lean.import_ipython()
