//! What the product does: one file a use case, one actor a sandbox.
//!
//! [`Control`] is the whole surface: a cheap clone that an API calls with a [`Caller`]. It names no engine and knows no wire
//! format. Inside, a sandbox's actor is the only writer of its state and is never in the path of data.

mod caller;
mod config;
mod control;
mod metrics;
mod request;
mod session;
mod surface;
mod text;
mod views;

pub use caller::Caller;
pub use config::ControlConfig;
pub use control::{Control, ControlTasks, KeyText, Started};
pub use metrics::{BUCKETS_MS, HistogramView, MetricsView};
pub use request::{
    CellReport, CellRequest, CellResult, ContextRequest, ExecCollect, ExecRequest, ExecResult, LogStream,
    MAX_RESULT_BYTES,
};
pub use session::{
    BuildLog, CellEvent, CellSession, CellText, EventFollow, ExecEvent, ExecInput, ExecOutput, ExecSession, ExecText,
    FileBody, LogFollow,
};
pub use text::{OutputText, TextCapture, TextDecoder};
pub use views::{
    BuildStatus, BuildView, CreateSandbox, EventView, Health, KeyView, LifecyclePatch, LifecycleView, MeView,
    SandboxFilter, SandboxView, TemplateView, VersionView,
};
