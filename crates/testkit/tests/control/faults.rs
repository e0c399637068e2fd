//! A fault at every step of a create or an end, and the world compared before and after.

use std::time::Duration;

use atoll_control::{CreateSandbox, SandboxFilter};
use atoll_model::{ErrorCode, GoneReason, State};
use atoll_testkit::{Fault, Stack, Step};

use crate::{code, sh, soon};

#[tokio::test]
async fn a_create_that_fails_at_any_step_leaves_the_world_as_it_was() {
    let faults = [
        (Fault::Before, ErrorCode::Internal),
        (Fault::After, ErrorCode::Internal),
        (Fault::NoRoom, ErrorCode::NoCapacity),
        (Fault::DeadLink, ErrorCode::Internal),
        (Fault::Hang, ErrorCode::Internal),
    ];
    let stack = Stack::start_with(|config| config.create_timeout = Duration::from_secs(10)).await;
    let bystander = stack.sandbox().await;
    let before = stack.machines().await;
    for (fault, expected) in faults {
        let wanted = || CreateSandbox {
            idempotency_key: Some(format!("{fault:?}")),
            ..CreateSandbox::default()
        };
        stack.engine.fail(Step::Restore, fault);
        // The removal fails, too, and is tried again.
        stack.engine.fail(Step::Stop, Fault::Before);
        let refused = soon(stack.control.sandbox_create(&stack.admin, wanted())).await;
        assert_eq!(code(refused), expected, "{fault:?}");
        assert_eq!(stack.machines().await, before, "{fault:?}");
        let all = SandboxFilter {
            include_failed: true,
            ..SandboxFilter::default()
        };
        let listed = stack.control.sandbox_list(&stack.admin, &all).await.unwrap();
        assert_eq!(listed.len(), 1, "{fault:?}");
        // The place on the host and the idempotency key are free again.
        let again = soon(stack.control.sandbox_create(&stack.admin, wanted()))
            .await
            .unwrap();
        stack.control.sandbox_delete(&stack.admin, again.id).await.unwrap();
    }
    assert_eq!(sh(&stack, bystander, "echo well").await.unwrap().stdout.text, "well\n");
    assert_eq!(stack.control.metrics().create_failures, faults.len() as u64);
    stack.stop().await;
}

#[tokio::test]
async fn a_machine_that_ends_by_itself_ends_its_calls_and_leaves_a_reason() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    let mut events = stack.control.event_follow(&stack.admin, id).await.unwrap();
    let session = stack.control.exec_start(
        &stack.admin,
        id,
        atoll_control::ExecRequest::shell("echo up; sleep 60"),
        false,
    );
    let mut session = session.await.unwrap();
    assert!(matches!(
        soon(session.output.next()).await,
        Some(atoll_control::ExecEvent::Stdout(_))
    ));

    stack.engine.kill(&id.into()).await;
    let end = soon(session.output.next()).await;
    let Some(atoll_control::ExecEvent::End(end)) = end else {
        panic!("{end:?}")
    };
    let reason = GoneReason::MachineDied;
    assert_eq!(
        (end.outcome, end.exit_code),
        (atoll_model::Outcome::SandboxGone { reason }, None)
    );
    while let Some(event) = soon(events.next()).await {
        assert!(
            ["sandbox.running", "vm.died"].contains(&event.kind.as_str()),
            "{event:?}"
        );
    }
    let view = stack.control.sandbox_get(&stack.admin, id).await.unwrap();
    assert_eq!((view.state, view.gone), (State::Failed, Some(reason)));
    assert!(view.failure.is_some() && view.ended_at.is_some());
    assert_eq!(code(sh(&stack, id, "true").await), ErrorCode::SandboxGone);
    assert_eq!(stack.machines().await, []);
    assert_eq!(
        stack
            .control
            .sandbox_list(&stack.admin, &SandboxFilter::default())
            .await
            .unwrap(),
        []
    );
    stack.control.sandbox_delete(&stack.admin, id).await.unwrap();
    stack.stop().await;
}

#[tokio::test]
async fn a_link_that_breaks_is_opened_again_and_the_sandbox_goes_on() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    sh(&stack, id, "echo kept > \"$HOME/.atoll-kept\" 2>/dev/null || true")
        .await
        .unwrap();
    stack.engine.cut_links();
    // The cut ends calls as lost; after it the agent is reached again through a new epoch.
    let again = async {
        loop {
            match sh(&stack, id, "echo again").await {
                Ok(result) => break result,
                Err(refusal) => assert_eq!(refusal.code, ErrorCode::AgentLost),
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(soon(again).await.stdout.text, "again\n");
    stack.stop().await;
}

#[tokio::test]
async fn a_machine_that_resists_its_removal_is_removed_in_the_end() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    stack.engine.fail(Step::Stop, Fault::Before);
    stack.engine.fail(Step::Stop, Fault::Before);
    // The first answer may be that it is not through yet; it is never "done" before it is.
    let deleted = async {
        while let Err(refusal) = stack.control.sandbox_delete(&stack.admin, id).await {
            match refusal.code {
                ErrorCode::Internal => tokio::task::yield_now().await,
                ErrorCode::NotFound => break,
                _ => panic!("{refusal}"),
            }
        }
    };
    soon(deleted).await;
    assert_eq!(stack.machines().await, []);
    stack.stop().await;
}
