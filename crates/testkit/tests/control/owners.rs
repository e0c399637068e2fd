//! Each sandbox has an owner: what passes does not end it, and what ends it is recorded, however often that has to be tried.

use std::time::{Duration, Instant};

use atoll_control::{CreateSandbox, LifecyclePatch, Recovered, SandboxView};
use atoll_model::{ErrorCode, GoneReason, SandboxId, State};
use atoll_testkit::{Fault, Stack, Step};
use sqlx::{Connection, Executor, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{code, sh, soon};

/// Changes the database behind the server's back.
async fn sql(stack: &Stack, statement: &'static str) {
    let options = SqliteConnectOptions::new().filename(stack.database());
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    connection.execute(statement).await.unwrap();
    connection.close().await.unwrap();
}

const STUCK: &str = "CREATE TRIGGER stuck BEFORE UPDATE ON sandboxes BEGIN SELECT RAISE(ABORT, 'a test said so'); END";
const LOOSE: &str = "DROP TRIGGER stuck";

/// The sandbox, once it has ended.
async fn ended(stack: &Stack, id: SandboxId) -> SandboxView {
    let over = async {
        loop {
            let view = stack.control.sandbox_get(&stack.admin, id).await.unwrap();
            if view.ended_at.is_some() && stack.machines().await.is_empty() {
                return view;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(over).await
}

/// The output of a command, once the agent is reached again.
async fn reached(stack: &Stack, id: SandboxId) -> String {
    let again = async {
        loop {
            match sh(stack, id, "echo again").await {
                Ok(result) => return result.stdout.text,
                Err(refusal) => assert_eq!(refusal.code, ErrorCode::AgentLost),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(again).await
}

/// Cuts the links and waits until the server has seen it.
async fn cut(stack: &Stack, id: SandboxId) {
    stack.engine.cut_links();
    let seen = async {
        while sh(stack, id, "true").await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    soon(seen).await;
}

#[tokio::test]
async fn an_error_that_passes_does_not_end_a_sandbox_whose_link_broke() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    stack.engine.fail(Step::Adopt, Fault::Before);
    stack.engine.fail(Step::Adopt, Fault::After);
    stack.engine.fail(Step::Adopt, Fault::NoRoom);
    stack.engine.cut_links();
    assert_eq!(reached(&stack, id).await, "again\n");
    stack.stop().await;
}

#[tokio::test]
async fn an_error_that_passes_does_not_end_a_sandbox_at_the_start_of_the_server() {
    let stack = Stack::start_with(|config| config.agent_timeout = Duration::from_secs(3)).await;
    let (slow, quick) = (stack.sandbox().await, stack.sandbox().await);
    let stack = stack
        .restart_after(async |engine| {
            // Whichever is first.
            engine.fail(Step::Adopt, Fault::Hold);
            engine.fail(Step::Adopt, Fault::Before);
        })
        .await;
    let found = Recovered {
        adopted: 1,
        late: 1,
        ..Recovered::default()
    };
    assert_eq!(stack.recovered, found);
    stack.engine.release();
    for id in [slow, quick] {
        assert_eq!(reached(&stack, id).await, "again\n");
    }
    stack.stop().await;
}

#[tokio::test]
async fn an_agent_that_stays_silent_ends_its_sandbox_for_that_reason() {
    let stack = Stack::start_with(|config| config.reach_timeout = Duration::from_secs(1)).await;
    let id = stack.sandbox().await;
    for _ in 0..100 {
        stack.engine.fail(Step::Adopt, Fault::Before);
    }
    let mut events = stack.control.event_follow(&stack.admin, id).await.unwrap();
    stack.engine.cut_links();
    let mut event = soon(events.next()).await.unwrap();
    if event.kind == "sandbox.running" {
        event = soon(events.next()).await.unwrap();
    }
    assert_eq!(
        (event.kind.as_str(), &event.payload),
        ("sandbox.failed", &serde_json::json!({ "reason": "agent_lost" }))
    );
    let view = ended(&stack, id).await;
    assert_eq!((view.state, view.gone), (State::Failed, Some(GoneReason::AgentLost)));
    assert_eq!(stack.control.metrics().machine_deaths, 0);
    stack.stop().await;
}

#[tokio::test]
async fn a_sandbox_hears_its_callers_while_its_agent_is_out_of_reach() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    stack.engine.fail(Step::Adopt, Fault::Hang);
    cut(&stack, id).await;
    let began = Instant::now();
    let patch = LifecyclePatch {
        ttl_seconds: Some(500),
        persistent: None,
    };
    let view = soon(stack.control.lifecycle_patch(&stack.admin, id, patch))
        .await
        .unwrap();
    assert_eq!(view.ttl_seconds, 500);
    soon(stack.control.sandbox_delete(&stack.admin, id)).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(stack.machines().await, []);
    stack.stop().await;
}

#[tokio::test]
async fn a_task_that_panics_ends_its_sandbox_for_that_reason_and_no_other_one() {
    let stack = Stack::start().await;
    let (id, other) = (stack.sandbox().await, SandboxId::random());
    stack.engine.fail(Step::Adopt, Fault::Panic);
    stack.engine.cut_links();
    let view = ended(&stack, id).await;
    assert_eq!((view.state, view.gone), (State::Failed, Some(GoneReason::ServerFault)));
    assert!(view.failure.is_some_and(|text| text.contains("log")));
    assert_eq!(code(sh(&stack, id, "true").await), ErrorCode::SandboxGone);
    stack.control.sandbox_delete(&stack.admin, id).await.unwrap();
    let unknown = stack.control.sandbox_delete(&stack.admin, other).await;
    assert_eq!(code(unknown), ErrorCode::NotFound);
    stack.stop().await;
}

#[tokio::test]
async fn a_create_that_panics_is_an_error_and_leaves_nothing() {
    let stack = Stack::start().await;
    stack.engine.fail(Step::Restore, Fault::Panic);
    let created = soon(stack.control.sandbox_create(&stack.admin, CreateSandbox::default())).await;
    assert_eq!(code(created), ErrorCode::Internal);
    assert_eq!(stack.machines().await, []);
    stack.sandbox().await;
    stack.stop().await;
}

#[tokio::test]
async fn a_record_that_lost_its_owner_is_told_as_a_fault_and_not_as_a_shutdown() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    sql(&stack, STUCK).await;
    stack.engine.fail(Step::Adopt, Fault::Panic);
    // And the end of it panics, too.
    stack.engine.fail(Step::Stop, Fault::Panic);
    stack.engine.cut_links();
    let told = async {
        loop {
            match sh(&stack, id, "true").await {
                Err(refusal) if refusal.code == ErrorCode::Internal => return refusal,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    assert!(soon(told).await.message.contains("fault"));
    let deleted = stack.control.sandbox_delete(&stack.admin, id).await;
    assert_eq!(code(deleted), ErrorCode::Internal);
    sql(&stack, LOOSE).await;
    // A restart sets it right, as the refusal says: record and machine are still there.
    let stack = stack.restart().await;
    assert_eq!(reached(&stack, id).await, "again\n");
    stack.stop().await;
}

#[tokio::test]
async fn an_end_that_can_not_be_written_is_told_and_written_when_it_can_be() {
    let stack = Stack::start().await;
    let (deleted, died) = (stack.sandbox().await, stack.sandbox().await);
    sql(&stack, STUCK).await;
    let refused = soon(stack.control.sandbox_delete(&stack.admin, deleted)).await;
    assert_eq!(code(refused), ErrorCode::Internal);
    stack.engine.kill(&died.into()).await;
    // Nothing runs any more, whatever the records say.
    let swept = async {
        while code(sh(&stack, died, "true").await) != ErrorCode::SandboxGone || !stack.machines().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(swept).await;
    let view = stack.control.sandbox_get(&stack.admin, died).await.unwrap();
    assert_eq!(view.state, State::Running);
    sql(&stack, LOOSE).await;
    let view = ended(&stack, died).await;
    assert_eq!((view.state, view.gone), (State::Failed, Some(GoneReason::MachineDied)));
    let over = async {
        while stack.control.sandbox_get(&stack.admin, deleted).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(over).await;
    stack.stop().await;
}

#[tokio::test]
async fn a_create_is_answered_in_time_even_if_its_remains_resist() {
    let stack = Stack::start_with(|config| config.create_timeout = Duration::from_secs(2)).await;
    let wanted = || CreateSandbox {
        idempotency_key: Some("once".to_owned()),
        ..CreateSandbox::default()
    };
    stack.engine.fail(Step::Restore, Fault::Hang);
    stack.engine.fail(Step::Stop, Fault::Hold);
    let began = Instant::now();
    let created = soon(stack.control.sandbox_create(&stack.admin, wanted())).await;
    assert_eq!(code(created), ErrorCode::Internal);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    stack.engine.release();
    // The key is free again when all is removed.
    let again = async {
        loop {
            match stack.control.sandbox_create(&stack.admin, wanted()).await {
                Ok(view) => return view,
                // The earlier create is still being undone, or was just now.
                Err(refusal) => assert!(
                    [ErrorCode::Internal, ErrorCode::SandboxGone].contains(&refusal.code),
                    "{refusal}"
                ),
            }
        }
    };
    assert_eq!(soon(again).await.state, State::Running);
    stack.stop().await;
}
