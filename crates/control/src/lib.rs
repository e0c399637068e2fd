//! What the product does: one file a use case, one actor a sandbox.
//!
//! [`Control`] is the whole surface: a cheap clone that an API calls with a [`Caller`]. It names no engine and knows no wire
//! format. Every use case checks the caller's scope itself, and what belongs to another workspace is not found.
//!
//! Read `create.rs` first, then `actor.rs`, which owns a sandbox's state, then `guest.rs`, through which every call to a
//! sandbox goes; the actor is never in the path of data.

mod actor;
mod admission;
mod answers;
mod boot;
mod builds;
mod caller;
mod catalog;
mod cell_session;
mod check;
mod config;
mod contexts;
mod control;
mod create;
mod delete;
mod ending;
mod events;
mod exec;
mod exec_session;
mod file_body;
mod files;
mod guest;
mod heartbeat;
mod idle;
mod jobs;
mod key_cache;
mod keys;
mod lease;
mod list;
mod live;
mod log;
mod metrics;
mod observe;
mod recover;
mod refusal;
mod request;
mod tap;
mod text;
mod view;
mod views;

pub use answers::{Held, Share};
pub use atoll_store::BuildStatus;
pub use builds::BuildLog;
pub use caller::{Caller, KeyEnd};
pub use cell_session::{CellEvent, CellSession, CellText};
pub use config::ControlConfig;
pub use control::{Control, ControlTasks, Started};
pub use events::EventFollow;
pub use exec_session::{ExecEvent, ExecInput, ExecOutput, ExecSession, ExecText};
pub use file_body::FileBody;
pub use keys::KeyText;
pub use metrics::{BUCKETS_MS, HistogramView, MetricsView};
pub use observe::LogFollow;
pub use recover::Recovered;
pub use request::{
    CellReport, CellRequest, CellResult, ContextRequest, ExecCollect, ExecRequest, ExecResult, LogStream,
    MAX_RESULT_BYTES,
};
pub use text::{OutputText, TextCapture, TextDecoder};
pub use views::{
    BuildView, CreateSandbox, EventView, Health, KeyView, LifecyclePatch, LifecycleView, MeView, SandboxFilter,
    SandboxView, TemplateView, VersionView,
};
