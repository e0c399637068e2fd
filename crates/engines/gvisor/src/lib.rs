//! Isolation by gVisor.
