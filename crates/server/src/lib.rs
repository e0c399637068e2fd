//! Config, wiring, task tree, shutdown: what `atoll serve` is made of.
//!
//! Start with [`settings`].

pub mod engines;
pub mod secret;
pub mod settings;
pub mod user_config;
