//! The use cases on the whole stack: real store, real agent, machines that are plain processes.

mod creates;
mod ends;
mod faults;
mod guest;
mod keys;
mod owners;
mod restarts;

use std::time::Duration;

use atoll_control::{ExecCollect, ExecRequest, ExecResult, Held};
use atoll_model::{ErrorCode, Refusal, SandboxId};
use atoll_testkit::Stack;

/// Awaits what must come; only a broken test waits so long.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what)
        .await
        .expect("it never came")
}

fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> ErrorCode {
    result.expect_err("a refusal").code
}

async fn sh(stack: &Stack, id: SandboxId, script: &str) -> Result<ExecResult, Refusal> {
    let run = stack
        .control
        .exec_run(&stack.admin, id, ExecRequest::shell(script), ExecCollect::default());
    soon(run).await.map(Held::into_inner)
}
