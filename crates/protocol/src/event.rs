//! Records: what a streaming body is made of. `{kind u8, length u32 big-endian, payload}`.

/// The kinds of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Bytes that the program wrote to standard output (or to its terminal).
    Stdout = 1,
    /// Bytes that the program wrote to standard error.
    Stderr = 2,
    /// A JSON value whose type the route names.
    Json = 3,
    /// Bytes for the program's standard input.
    Stdin = 4,
    /// Standard input ends.
    StdinEnd = 5,
}

/// Bytes of a record's header.
pub const HEADER: usize = 5;
/// The longest `Stdout`, `Stderr` or `Stdin` payload, in bytes.
pub const MAX_BYTES: usize = 64 * 1024;
/// The longest `Json` payload, in bytes. A cell's result that is larger is cut or moved to a file by the agent.
pub const MAX_JSON: usize = 16 << 20;
