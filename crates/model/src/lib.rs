//! The words of Atoll: ids, specs, the lifecycle table, limits and errors.
//!
//! Nothing here does I/O or knows of async. Start with [`lifecycle`], then [`spec`].

pub mod environment;
pub mod error;
pub mod ids;
pub mod isolation;
pub mod key;
pub mod lifecycle;
pub mod limits;
pub mod names;
pub mod outcome;
pub mod output;
pub mod spec;

pub use environment::Environment;
pub use error::{ErrorCode, Refusal};
pub use ids::{BuildId, ContextId, ExecId, KeyId, MachineId, SandboxId, WorkspaceId};
pub use isolation::Isolation;
pub use key::Scope;
pub use lifecycle::{Event, State};
pub use limits::Limits;
pub use names::TemplateName;
pub use outcome::{GoneReason, Outcome};
pub use output::OutputLimit;
pub use spec::SandboxSpec;
