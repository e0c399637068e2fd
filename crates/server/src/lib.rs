//! Config, wiring, task tree, shutdown: what `atoll serve` is made of.
//!
//! [`run`] reads from the server's start to its end. [`engines`] alone names concrete engines, [`settings`] is all that an
//! operator may set, [`user_config`] is the file that the command line finds its server in.

mod baking;
pub mod checkup;
pub mod engines;
mod first_key;
mod gate;
mod http;
mod leftover;
pub mod logging;
pub mod run;
mod seat;
pub mod secret;
pub mod settings;
pub mod signals;
pub mod user_config;
