//! How sandboxes end: by a delete or by their idle limit, and never under a call that was promised time.

use atoll_control::{ExecCollect, ExecEvent, ExecRequest, LifecyclePatch};
use atoll_model::{ErrorCode, GoneReason, Outcome};
use atoll_testkit::Stack;

use crate::{code, sh, soon};

#[tokio::test]
async fn a_delete_ends_open_calls_at_once_and_answers_when_nothing_is_left() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    let start = stack
        .control
        .exec_start(&stack.admin, id, ExecRequest::shell("echo up; sleep 600"), false);
    let mut session = start.await.unwrap();
    assert!(matches!(soon(session.output.next()).await, Some(ExecEvent::Stdout(_))));
    let (control, admin) = (stack.control.clone(), stack.admin.clone());
    let collected = tokio::spawn(async move {
        let sleep = ExecRequest::argv(["sleep", "600"]);
        control.exec_run(&admin, id, sleep, ExecCollect::default()).await
    });
    let both = tokio::join!(
        stack.control.sandbox_delete(&stack.admin, id),
        stack.control.sandbox_delete(&stack.admin, id),
    );
    assert!(matches!(both, (Ok(()), Ok(()))), "{both:?}");
    assert_eq!(stack.machines().await, []);
    let Some(ExecEvent::End(end)) = soon(session.output.next()).await else {
        panic!("no end")
    };
    let reason = GoneReason::Deleted;
    assert_eq!(end.outcome, Outcome::SandboxGone { reason });
    assert!(session.output.next().await.is_none());
    assert_eq!(code(soon(collected).await.unwrap()), ErrorCode::SandboxGone);

    assert_eq!(
        code(stack.control.sandbox_delete(&stack.admin, id).await),
        ErrorCode::NotFound
    );
    assert_eq!(
        code(stack.control.sandbox_get(&stack.admin, id).await),
        ErrorCode::NotFound
    );
    assert_eq!(code(sh(&stack, id, "true").await), ErrorCode::SandboxGone);
    let events = stack.control.event_list(&stack.admin, id, 10).await.unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["sandbox.running", "sandbox.deleted"]);
    stack.stop().await;
}

#[tokio::test]
async fn an_idle_sandbox_expires_and_a_long_quiet_command_keeps_it() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    let mut events = stack.control.event_follow(&stack.admin, id).await.unwrap();
    let request = ExecRequest::shell("echo up; sleep 3; echo survived");
    let mut session = stack
        .control
        .exec_start(&stack.admin, id, request, false)
        .await
        .unwrap();
    assert!(matches!(soon(session.output.next()).await, Some(ExecEvent::Stdout(_))));
    // From now on it may be idle for a third of the time that the command is silent.
    let patch = LifecyclePatch {
        ttl_seconds: Some(1),
        persistent: None,
    };
    stack.control.lifecycle_patch(&stack.admin, id, patch).await.unwrap();
    let Some(ExecEvent::Stdout(bytes)) = soon(session.output.next()).await else {
        panic!("it did not survive")
    };
    assert_eq!(bytes, "survived\n");
    drop(session);
    let deleted = async {
        while let Some(event) = events.next().await {
            if event.kind == "sandbox.deleted" {
                return event.payload;
            }
        }
        panic!("no end");
    };
    assert_eq!(soon(deleted).await, serde_json::json!({ "reason": "expired" }));
    assert_eq!(stack.control.metrics().expirations, 1);
    stack.stop().await;
}

#[tokio::test]
async fn a_lease_is_changed_for_good() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    let patch = LifecyclePatch {
        ttl_seconds: Some(0),
        persistent: Some(true),
    };
    let view = stack.control.lifecycle_patch(&stack.admin, id, patch).await.unwrap();
    assert_eq!((view.ttl_seconds, view.persistent), (0, true));
    assert_eq!(
        stack.control.lifecycle_get(&stack.admin, id).await.unwrap().ttl_seconds,
        0
    );
    let stack = stack.restart().await;
    let view = stack.control.sandbox_get(&stack.admin, id).await.unwrap();
    assert_eq!((view.ttl_seconds, view.persistent), (0, true));
    let too_long = LifecyclePatch {
        ttl_seconds: Some(u64::MAX),
        persistent: None,
    };
    let refused = stack.control.lifecycle_patch(&stack.admin, id, too_long).await;
    assert_eq!(code(refused), ErrorCode::InvalidRequest);
    stack.stop().await;
}
