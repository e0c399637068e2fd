//! Use cases whose bodies are being written.
#![allow(missing_docs, unused_variables, clippy::unused_async)]

use atoll_engine::Usage;
use atoll_model::{BuildId, ContextId, ExecId, Refusal, SandboxId, Scope};
use atoll_protocol::types::{ContextInfo, ExecInfo, FileInfo, FileList, FileWritten, Stats, TerminalSize};
use bytes::Bytes;
use futures_util::Stream;
use time::Duration;

use crate::*;

impl Control {
    // keys
    /// `atl_` or `e2b_` and the same 40 hexadecimal digits are the same key. Errors: `Unauthorized`.
    pub async fn authenticate(&self, token: &str) -> Result<Caller, Refusal> {
        unimplemented!()
    }
    /// Admin. The text is shown this once.
    pub async fn key_create(
        &self,
        caller: &Caller,
        name: &str,
        scope: Scope,
        expires_in: Option<Duration>,
    ) -> Result<(KeyView, KeyText), Refusal> {
        unimplemented!()
    }
    /// Admin.
    pub async fn key_list(&self, caller: &Caller) -> Result<Vec<KeyView>, Refusal> {
        unimplemented!()
    }
    /// Admin. Works at once.
    pub async fn key_revoke(&self, caller: &Caller, prefix: &str) -> Result<(), Refusal> {
        unimplemented!()
    }
    pub async fn me(&self, caller: &Caller) -> Result<MeView, Refusal> {
        unimplemented!()
    }

    // sandboxes
    pub async fn sandbox_create(&self, caller: &Caller, wanted: CreateSandbox) -> Result<SandboxView, Refusal> {
        unimplemented!()
    }
    /// Newest first.
    pub async fn sandbox_list(&self, caller: &Caller, filter: &SandboxFilter) -> Result<Vec<SandboxView>, Refusal> {
        unimplemented!()
    }
    pub async fn sandbox_get(&self, caller: &Caller, id: SandboxId) -> Result<SandboxView, Refusal> {
        unimplemented!()
    }
    /// Waits until nothing of it is left.
    pub async fn sandbox_delete(&self, caller: &Caller, id: SandboxId) -> Result<(), Refusal> {
        unimplemented!()
    }
    pub async fn lifecycle_get(&self, caller: &Caller, id: SandboxId) -> Result<LifecycleView, Refusal> {
        unimplemented!()
    }
    pub async fn lifecycle_patch(
        &self,
        caller: &Caller,
        id: SandboxId,
        patch: LifecyclePatch,
    ) -> Result<LifecycleView, Refusal> {
        unimplemented!()
    }

    // commands
    /// Collected. A deadline is an `Ok` with `Outcome::Timeout`; a sandbox that ends meanwhile is `Err(SandboxGone)`, a silent agent `Err(AgentLost)`.
    pub async fn exec_run(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: ExecRequest,
        collect: ExecCollect,
    ) -> Result<ExecResult, Refusal> {
        unimplemented!()
    }
    /// `stdin`: whether input follows (a terminal always has it).
    pub async fn exec_start(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: ExecRequest,
        stdin: bool,
    ) -> Result<ExecSession, Refusal> {
        unimplemented!()
    }
    pub async fn exec_attach(&self, caller: &Caller, id: SandboxId, exec: ExecId) -> Result<ExecSession, Refusal> {
        unimplemented!()
    }
    pub async fn exec_list(&self, caller: &Caller, id: SandboxId) -> Result<Vec<ExecInfo>, Refusal> {
        unimplemented!()
    }
    pub async fn exec_signal(&self, caller: &Caller, id: SandboxId, exec: ExecId, signal: i32) -> Result<(), Refusal> {
        unimplemented!()
    }
    pub async fn exec_resize(
        &self,
        caller: &Caller,
        id: SandboxId,
        exec: ExecId,
        size: TerminalSize,
    ) -> Result<(), Refusal> {
        unimplemented!()
    }

    // files; paths are absolute
    pub async fn file_read(
        &self,
        caller: &Caller,
        id: SandboxId,
        path: &str,
        offset: u64,
        length: Option<u64>,
    ) -> Result<FileBody, Refusal> {
        unimplemented!()
    }
    /// Atomic: appears complete under its name, or not at all when the body breaks off. Makes parents.
    pub async fn file_write<S, E>(
        &self,
        caller: &Caller,
        id: SandboxId,
        path: &str,
        mode: Option<u32>,
        body: S,
    ) -> Result<FileWritten, Refusal>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        unimplemented!()
    }
    pub async fn file_stat(&self, caller: &Caller, id: SandboxId, path: &str) -> Result<FileInfo, Refusal> {
        unimplemented!()
    }
    pub async fn file_list(
        &self,
        caller: &Caller,
        id: SandboxId,
        path: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<FileList, Refusal> {
        unimplemented!()
    }
    pub async fn file_remove(&self, caller: &Caller, id: SandboxId, path: &str) -> Result<(), Refusal> {
        unimplemented!()
    }
    pub async fn file_move(&self, caller: &Caller, id: SandboxId, from: &str, to: &str) -> Result<(), Refusal> {
        unimplemented!()
    }
    pub async fn file_mkdir(&self, caller: &Caller, id: SandboxId, path: &str) -> Result<(), Refusal> {
        unimplemented!()
    }

    // contexts
    pub async fn context_create(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: ContextRequest,
    ) -> Result<ContextInfo, Refusal> {
        unimplemented!()
    }
    pub async fn context_list(&self, caller: &Caller, id: SandboxId) -> Result<Vec<ContextInfo>, Refusal> {
        unimplemented!()
    }
    pub async fn context_close(&self, caller: &Caller, id: SandboxId, context: ContextId) -> Result<(), Refusal> {
        unimplemented!()
    }
    pub async fn context_interrupt(&self, caller: &Caller, id: SandboxId, context: ContextId) -> Result<(), Refusal> {
        unimplemented!()
    }
    pub async fn context_restart(
        &self,
        caller: &Caller,
        id: SandboxId,
        context: ContextId,
    ) -> Result<ContextInfo, Refusal> {
        unimplemented!()
    }
    /// Collected; errors as for `exec_run`.
    pub async fn cell_run(
        &self,
        caller: &Caller,
        id: SandboxId,
        context: ContextId,
        request: CellRequest,
    ) -> Result<CellReport, Refusal> {
        unimplemented!()
    }
    pub async fn cell_start(
        &self,
        caller: &Caller,
        id: SandboxId,
        context: ContextId,
        request: CellRequest,
    ) -> Result<CellSession, Refusal> {
        unimplemented!()
    }

    // observing one sandbox
    /// The last 64 KiB at most.
    pub async fn log_tail(&self, caller: &Caller, id: SandboxId, stream: LogStream) -> Result<String, Refusal> {
        unimplemented!()
    }
    pub async fn log_follow(&self, caller: &Caller, id: SandboxId, stream: LogStream) -> Result<LogFollow, Refusal> {
        unimplemented!()
    }
    /// The newest `tail` ones, oldest first.
    pub async fn event_list(&self, caller: &Caller, id: SandboxId, tail: u32) -> Result<Vec<EventView>, Refusal> {
        unimplemented!()
    }
    pub async fn event_follow(&self, caller: &Caller, id: SandboxId) -> Result<EventFollow, Refusal> {
        unimplemented!()
    }
    /// What the host holds for it.
    pub async fn sandbox_usage(&self, caller: &Caller, id: SandboxId) -> Result<Usage, Refusal> {
        unimplemented!()
    }
    /// What the agent says of it.
    pub async fn sandbox_stats(&self, caller: &Caller, id: SandboxId) -> Result<Stats, Refusal> {
        unimplemented!()
    }

    // templates
    pub async fn template_list(&self, caller: &Caller) -> Result<Vec<TemplateView>, Refusal> {
        unimplemented!()
    }
    pub async fn template_get(&self, caller: &Caller, name: &str) -> Result<TemplateView, Refusal> {
        unimplemented!()
    }
    /// Admin. Builds a template that this host knows the recipe of; a build of it that waits or runs is returned as it is.
    pub async fn build_start(&self, caller: &Caller, template: &str) -> Result<BuildView, Refusal> {
        unimplemented!()
    }
    pub async fn build_list(&self, caller: &Caller) -> Result<Vec<BuildView>, Refusal> {
        unimplemented!()
    }
    pub async fn build_get(&self, caller: &Caller, id: BuildId) -> Result<BuildView, Refusal> {
        unimplemented!()
    }
    pub async fn build_log(&self, caller: &Caller, id: BuildId) -> Result<BuildLog, Refusal> {
        unimplemented!()
    }

    // the host
    #[must_use]
    pub fn version(&self) -> VersionView {
        unimplemented!()
    }
    pub async fn health(&self) -> Health {
        unimplemented!()
    }
    #[must_use]
    pub fn metrics(&self) -> MetricsView {
        unimplemented!()
    }
}
