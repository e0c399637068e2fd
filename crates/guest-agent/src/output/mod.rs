//! Output on its way from a process to a caller: bounded, in order, never cut inside a character.

mod hub;
mod keeper;
mod spill;

pub(crate) use hub::{Hub, Policy};
pub(crate) use keeper::Keeper;
pub(crate) use spill::{Spill, SpillFile};
