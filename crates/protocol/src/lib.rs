//! What host and agent say to each other. No I/O here.
//!
//! - [`frame`]: how bytes travel on the link so that either end can be replaced.
//! - [`event`]: the records in the body of a streaming call.
//! - [`route`] and [`types`]: the agent's HTTP/2 routes and their JSON bodies.

pub mod event;
pub mod frame;
pub mod route;
pub mod types;
