//! The registry of engines: the only place that names concrete ones.

/// The engine taken when none is named.
pub const DEFAULT: &str = "gvisor";
