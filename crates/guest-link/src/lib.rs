//! The host's end of the link: a typed client of the agent.
//!
//! [`GuestLink::attach`] takes the byte stream that an engine gave and opens a new epoch on it; the handle is cheap to
//! clone. Every call is one HTTP/2 stream. Dropping a session ([`ExecSession`], [`CellSession`], [`FileRead`]) or the future
//! of a call cancels it in the guest. When the link dies, every call, running or new, says [`GuestError::Lost`] at once; a
//! stream that ends before its last event is never taken for a success.
//!
//! This crate decides nothing: limits, retries and what a caller may do are `control`'s.

mod body;
mod cells;
mod connection;
mod error;
mod exec;
mod files;
mod machine;

pub use body::BodyError;
pub use cells::{CellOutput, CellSession};
pub use connection::GuestLink;
pub use error::{GuestError, LinkError};
pub use exec::{ExecEvent, ExecSession, ExecStdin};
pub use files::FileRead;
