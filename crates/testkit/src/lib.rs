//! The whole stack in one call: a real store in a temporary folder, a real engine, the real agent, and the use cases.
//!
//! Machines come from the fake engine, plain child processes that start in milliseconds, so a test needs no isolation and no
//! root directory. [`Faulty`] stands between `control` and the engine and fails where a test says.

mod faulty;
mod stack;
pub mod templates;

pub use faulty::{Fault, Faulty, Step};
pub use stack::Stack;
