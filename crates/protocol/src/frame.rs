//! Framing of the link: `{epoch u32, length u32, bytes}`, big-endian, resettable at any byte.
//!
//! The link is one dumb duplex byte stream whose either end may be replaced at any moment: the server restarts and opens
//! the FIFOs again, a machine is restored from a snapshot taken in the middle of a frame. So:
//!
//! - An epoch always has its top bit set; a zero byte where a frame could start is padding and skipped.
//! - Who (re)opens a direction first sends [`PADDING`] zero bytes, as many as the longest frame has. Whatever frame the
//!   predecessor left unfinished ends inside the padding, and after it the reader stands at the start of a frame.
//! - The first frame of an epoch carries the `OPEN` bit in `length`. A reader takes a new epoch from such a frame only and
//!   drops every frame of another epoch.
//! - A header that cannot be (no top bit, longer than [`MAX_PAYLOAD`]) makes the reader drop one byte and look again.

/// Bytes of a header.
pub const HEADER: usize = 8;
/// The longest payload of one frame, in bytes.
pub const MAX_PAYLOAD: usize = 64 * 1024;
/// Zero bytes sent when a direction is opened.
pub const PADDING: usize = HEADER + MAX_PAYLOAD;
/// In `length`: this frame opens its epoch.
pub const OPEN: u32 = 1 << 31;
/// In every epoch.
pub const EPOCH_BIT: u32 = 1 << 31;
