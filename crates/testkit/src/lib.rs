//! The whole stack in one call, on the fake engine.
