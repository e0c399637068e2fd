//! What we do to the machine: children, cgroups, mounts, FIFOs.
