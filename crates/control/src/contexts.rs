//! Code contexts and their cells.

use std::time::Duration;

use atoll_model::{ContextId, OutputLimit, Refusal, SandboxId, Scope, limits::DEFAULT_CELL_TIMEOUT_SECONDS};
use atoll_protocol::types::{CellEnd, CellRun, ContextCreate, ContextInfo};

use crate::{
    Caller, CellReport, CellRequest, CellResult, CellSession, ContextRequest, Control, Held,
    cell_session::CellEvent,
    check::{check_env, check_language, check_no_nul, check_timeout},
    guest::Counts,
    refusal,
    request::MAX_RESULT_BYTES,
    text::TextCapture,
};

impl Control {
    /// Makes a context.
    ///
    /// # Errors
    /// `InvalidRequest` for a language that this template has not, `TooMany`.
    pub async fn context_create(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: ContextRequest,
    ) -> Result<ContextInfo, Refusal> {
        check_env(&request.env)?;
        check_no_nul("cwd", request.cwd.as_deref().unwrap_or_default())?;
        let create = ContextCreate {
            language: check_language(&request.language)?.to_owned(),
            cwd: request.cwd,
            env: request.env,
        };
        let lent = self.lend(caller, id, Scope::Full, Counts::AsUse).await?;
        lent.race(lent.link.context_create(&create)).await
    }

    /// The contexts.
    ///
    /// # Errors
    /// `NotFound`, `NotRunning`, `SandboxGone`, `AgentLost`.
    pub async fn context_list(&self, caller: &Caller, id: SandboxId) -> Result<Vec<ContextInfo>, Refusal> {
        let lent = self.lend(caller, id, Scope::ReadOnly, Counts::AsLook).await?;
        lent.prompt(lent.link.context_list()).await
    }

    /// Ends a context with everything it started; its cells end as cancelled.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn context_close(&self, caller: &Caller, id: SandboxId, context: ContextId) -> Result<(), Refusal> {
        let lent = self.lend(caller, id, Scope::Full, Counts::AsUse).await?;
        lent.race(lent.link.context_close(context)).await
    }

    /// Interrupts the cell that runs; nothing when none does.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn context_interrupt(&self, caller: &Caller, id: SandboxId, context: ContextId) -> Result<(), Refusal> {
        let lent = self.lend(caller, id, Scope::Full, Counts::AsUse).await?;
        lent.prompt(lent.link.context_interrupt(context)).await
    }

    /// A fresh interpreter under the same id; its state is lost.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn context_restart(
        &self,
        caller: &Caller,
        id: SandboxId,
        context: ContextId,
    ) -> Result<ContextInfo, Refusal> {
        let lent = self.lend(caller, id, Scope::Full, Counts::AsUse).await?;
        lent.race(lent.link.context_restart(context)).await
    }

    /// Runs a cell to its end and collects what it gave. An exception, a deadline or a dead interpreter is an `Ok` that says so.
    ///
    /// # Errors
    /// `SandboxGone` at once when the sandbox ends meanwhile, `AgentLost`, `NotFound`, `TooMany` when the queue is full;
    /// `NoCapacity` when the answers of other calls fill the memory for them.
    pub async fn cell_run(
        &self,
        caller: &Caller,
        id: SandboxId,
        context: ContextId,
        request: CellRequest,
    ) -> Result<Held<CellReport>, Refusal> {
        let mut collector = Collector::new(request.keep);
        let mut share = self.inner.answers.begin().await?;
        let mut session = self.cell_start(caller, id, context, request).await?;
        while let Some(event) = session.next().await {
            match event {
                CellEvent::Stdout(bytes) => collector.stdout.push(&bytes),
                CellEvent::Stderr(bytes) => collector.stderr.push(&bytes),
                CellEvent::Result(result) => collector.push(result),
                CellEvent::End(end) => {
                    refusal::unknown_end(&end.outcome)?;
                    return Ok(Held::new(collector.finish(end), share));
                }
            }
            share.cover(collector.held()).await?;
        }
        Err(refusal::lost())
    }

    /// Queues a cell and streams what it does. Cells of one context run in the order of these calls.
    ///
    /// # Errors
    /// `NotFound`, `TooMany` when the queue is full; once the session is there, its `End` says everything.
    pub async fn cell_start(
        &self,
        caller: &Caller,
        id: SandboxId,
        context: ContextId,
        request: CellRequest,
    ) -> Result<CellSession, Refusal> {
        check_env(&request.env)?;
        let timeout = request
            .timeout
            .unwrap_or(Duration::from_secs(DEFAULT_CELL_TIMEOUT_SECONDS));
        let run = CellRun {
            code: request.code,
            timeout_ms: check_timeout(timeout)?,
            env: request.env,
            keep: request.keep,
        };
        let lent = self.lend(caller, id, Scope::Full, Counts::AsUse).await?;
        let session = lent.race(lent.link.context_run(context, &run)).await?;
        Ok(CellSession::new(session, lent))
    }
}

/// Puts a cell's output together, within bounds.
struct Collector {
    stdout: TextCapture,
    stderr: TextCapture,
    results: Vec<CellResult>,
    held: usize,
    dropped: u64,
}

impl Collector {
    fn new(keep: OutputLimit) -> Self {
        Self {
            stdout: TextCapture::new(keep.0),
            stderr: TextCapture::new(keep.0),
            results: Vec::new(),
            held: 0,
            dropped: 0,
        }
    }

    /// Bytes that are kept.
    fn held(&self) -> usize {
        self.stdout.held() + self.stderr.held() + self.held
    }

    fn push(&mut self, result: CellResult) {
        let weight: usize = result
            .bundle
            .iter()
            .map(|(mime, value)| mime.len() + weight(value))
            .sum();
        if self.held + weight > MAX_RESULT_BYTES {
            self.dropped += 1;
        } else {
            self.held += weight;
            self.results.push(result);
        }
    }

    fn finish(self, end: CellEnd) -> CellReport {
        CellReport {
            outcome: end.outcome,
            stdout: self.stdout.finish(Some(end.stdout)),
            stderr: self.stderr.finish(Some(end.stderr)),
            results: self.results,
            results_dropped: self.dropped,
            error: end.error,
            exit_code: end.exit_code,
            execution_count: end.execution_count,
            duration: Duration::from_millis(end.duration_ms),
        }
    }
}

/// About how many bytes of JSON a value is; never less than it holds in strings, and more than zero so that endless
/// small results end, too.
fn weight(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    const PUNCTUATION: usize = 8;
    PUNCTUATION
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + weight(value)).sum(),
        }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn result(text: &str) -> CellResult {
        CellResult {
            bundle: BTreeMap::from([("text/plain".to_owned(), text.into())]),
            is_last_expression: false,
        }
    }

    #[test]
    fn results_beyond_the_bound_are_counted_and_smaller_ones_still_kept() {
        let mut collector = Collector::new(OutputLimit::default());
        collector.push(result(&"a".repeat(MAX_RESULT_BYTES / 2)));
        collector.push(result(&"b".repeat(MAX_RESULT_BYTES)));
        collector.push(result("c"));
        assert_eq!((collector.results.len(), collector.dropped), (2, 1));
    }
}
