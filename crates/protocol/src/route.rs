//! The agent's routes, served as HTTP/2 inside one epoch of the link.
//!
//! | method and path | request | response |
//! |---|---|---|
//! | `POST /thaw` | [`ThawRequest`](crate::types::ThawRequest) | [`ThawReply`](crate::types::ThawReply) |
//! | `GET /ping` | | 204 |
//! | `GET /stats` | | [`Stats`](crate::types::Stats) |
//! | `POST /exec` | records: `Json` [`ExecStart`](crate::types::ExecStart), then `Stdin`*, `StdinEnd` | records: `Json` [`ExecStarted`](crate::types::ExecStarted), `Stdout`/`Stderr`*, `Json` [`ExecEnd`](crate::types::ExecEnd) |
//! | `GET /exec` | | `[`[`ExecInfo`](crate::types::ExecInfo)`]` |
//! | `POST /exec/attach?id=` | records: `Stdin`*, `StdinEnd` | as for `POST /exec`, from the retained tail on |
//! | `POST /exec/signal` | [`ExecSignal`](crate::types::ExecSignal) | 204 |
//! | `POST /exec/resize` | [`ExecResize`](crate::types::ExecResize) | 204 |
//! | `GET /files/content?path=&offset=&length=` | | the bytes; `x-atoll-size` is the size when known |
//! | `PUT /files/content?path=` | the bytes; `x-atoll-mode` (octal) optional | [`FileWritten`](crate::types::FileWritten) |
//! | `GET /files/stat?path=` | | [`FileInfo`](crate::types::FileInfo) |
//! | `GET /files/list?path=&after=&limit=` | | [`FileList`](crate::types::FileList) |
//! | `DELETE /files?path=` | | 204 |
//! | `POST /files/move` | [`FileMove`](crate::types::FileMove) | 204 |
//! | `POST /files/mkdir?path=` | | 204 |
//! | `POST /contexts` | [`ContextCreate`](crate::types::ContextCreate) | [`ContextInfo`](crate::types::ContextInfo) |
//! | `GET /contexts` | | `[`[`ContextInfo`](crate::types::ContextInfo)`]` |
//! | `DELETE /contexts?id=` | | 204 |
//! | `POST /contexts/run?id=` | records: `Json` [`CellRun`](crate::types::CellRun) | records: `Stdout`/`Stderr`*, `Json` [`CellEvent`](crate::types::CellEvent)*, the last of them `done` |
//! | `POST /contexts/interrupt?id=` | | 204 |
//! | `POST /contexts/restart?id=` | | [`ContextInfo`](crate::types::ContextInfo) |
//! | `POST /warm` | [`WarmRequest`](crate::types::WarmRequest) | 204, once the zygote is ready; for bakes |
//!
//! A refusal is a 4xx or 5xx with a JSON [`GuestRefusal`](crate::types::GuestRefusal). Resetting the stream of an exec or
//! a cell before its end cancels it unless `detach` was set. The end of the request body is no cancellation: it ends a
//! command's standard input.

/// `POST`: make a restored machine a new one.
pub const THAW: &str = "/thaw";
/// `GET`: an empty answer, as soon as the agent can give one.
pub const PING: &str = "/ping";
/// `GET`: memory, processes, uptime.
pub const STATS: &str = "/stats";
/// `POST`: start a command; `GET`: list.
pub const EXEC: &str = "/exec";
/// `POST`: follow a command that runs or ran.
pub const EXEC_ATTACH: &str = "/exec/attach";
/// `POST`: send a signal.
pub const EXEC_SIGNAL: &str = "/exec/signal";
/// `POST`: resize a terminal.
pub const EXEC_RESIZE: &str = "/exec/resize";
/// `GET`, `PUT`: a file's bytes.
pub const FILE_CONTENT: &str = "/files/content";
/// Of a file's answer: how many bytes follow, when that is known.
pub const SIZE_HEADER: &str = "x-atoll-size";
/// Of a file's write: permission bits in octal digits.
pub const MODE_HEADER: &str = "x-atoll-mode";
/// `GET`: one entry.
pub const FILE_STAT: &str = "/files/stat";
/// `GET`: a directory, in pages.
pub const FILE_LIST: &str = "/files/list";
/// `DELETE`: remove, directories with all they hold.
pub const FILES: &str = "/files";
/// `POST`: rename.
pub const FILE_MOVE: &str = "/files/move";
/// `POST`: make a directory and its parents.
pub const FILE_MKDIR: &str = "/files/mkdir";
/// `POST`: create; `GET`: list; `DELETE`: close.
pub const CONTEXTS: &str = "/contexts";
/// `POST`: run a cell.
pub const CONTEXT_RUN: &str = "/contexts/run";
/// `POST`: interrupt what runs.
pub const CONTEXT_INTERRUPT: &str = "/contexts/interrupt";
/// `POST`: a fresh interpreter under the same id.
pub const CONTEXT_RESTART: &str = "/contexts/restart";
/// `POST`: start and warm the zygote (bakes only).
pub const WARM: &str = "/warm";
