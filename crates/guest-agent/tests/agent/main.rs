//! The real agent as a child process, spoken to through the real link.
//!
//! Run as root it is process 1 of its own process namespace, as in a machine; otherwise a plain process.

mod contexts;
mod exec;
mod files;
mod guard;
mod guest;
mod hostile;
mod link;
