//! Config, wiring, task tree, shutdown.
