"""Fresh random numbers for every context.

A snapshot freezes generators that were seeded before it, so without this every sandbox restored from it would draw the
same numbers. `os.urandom`, `secrets` and `uuid4` ask the kernel and need no help. Seeding happens before a context's first
cell, and again when its machine is restored from a snapshot. Between those, what a cell seeds itself stays as the cell wants
it; a generator object that a cell made (`default_rng(1)`) is the cell's own and is never touched.
"""

import hashlib
import os
import random
import sys
import tempfile


def reseed(entropy):
    """Seeds every generator that a warm interpreter may hold, from these bytes and the kernel's."""

    def fresh(label, size):
        mixed = hashlib.sha256(entropy + os.urandom(32) + os.getpid().to_bytes(8, "big") + label)
        return int.from_bytes(mixed.digest()[:size], "big")

    random.seed(fresh(b"random", 32))
    tempfile._name_sequence = None
    if "numpy.random" in sys.modules:
        seed = [fresh(b"numpy" + bytes([word]), 4) for word in range(8)]
        sys.modules["numpy.random"].seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(fresh(b"torch", 8))
    if "uuid" in sys.modules:
        # uuid1 remembers its node and its last time stamp.
        sys.modules["uuid"]._node = None
        sys.modules["uuid"]._last_timestamp = None
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
