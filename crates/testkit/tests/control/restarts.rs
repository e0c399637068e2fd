//! A server that stops or crashes, and its next start.

use atoll_control::{CellRequest, ContextRequest, Recovered, SandboxFilter};
use atoll_model::{GoneReason, MachineId, SandboxId, State};
use atoll_testkit::Stack;

use crate::{sh, soon};

#[tokio::test]
async fn sandboxes_and_their_contexts_outlive_the_server() {
    let stack = Stack::start_with_python().await;
    let id = stack.sandbox().await;
    let python = ContextRequest {
        language: "python".into(),
        ..ContextRequest::default()
    };
    let context = soon(stack.control.context_create(&stack.admin, id, python))
        .await
        .unwrap()
        .id;
    let cell = |code: &str| CellRequest {
        code: code.to_owned(),
        ..CellRequest::default()
    };
    soon(stack.control.cell_run(&stack.admin, id, context, cell("x = 41")))
        .await
        .unwrap();
    let stack = stack.restart().await;
    let adopted = Recovered {
        adopted: 1,
        ..Recovered::default()
    };
    assert_eq!(stack.recovered, adopted);
    let report = soon(stack.control.cell_run(&stack.admin, id, context, cell("x + 1")))
        .await
        .unwrap();
    assert_eq!(report.results[0].bundle["text/plain"], "42");
    assert_eq!(stack.control.authenticate(&stack.first_key).await.unwrap(), stack.admin);
    stack.stop().await;
}

#[tokio::test]
async fn a_sandbox_whose_machine_ended_meanwhile_is_failed_with_its_reason() {
    let stack = Stack::start().await;
    let (dead, alive) = (stack.sandbox().await, stack.sandbox().await);
    let stack = stack
        .restart_after(async |engine| engine.kill(&dead.into()).await)
        .await;
    assert_eq!((stack.recovered.adopted, stack.recovered.died), (1, 1));
    let view = stack.control.sandbox_get(&stack.admin, dead).await.unwrap();
    assert_eq!((view.state, view.gone), (State::Failed, Some(GoneReason::MachineDied)));
    assert_eq!(sh(&stack, alive, "echo on").await.unwrap().stdout.text, "on\n");
    stack.stop().await;
}

#[tokio::test]
async fn what_a_crash_left_half_done_is_swept_and_what_no_record_knows_is_removed() {
    let stack = Stack::start().await;
    let (creating, stopping, stray) = (stack.sandbox().await, stack.sandbox().await, stack.sandbox().await);
    let database = stack.database();
    let stack = stack
        .restart_after(async |_| {
            // As a kill between two steps leaves the records.
            let store = atoll_store::Store::open(&database).await.unwrap();
            for (id, state) in [
                (creating, State::Creating),
                (stopping, State::Stopping),
                (stray, State::Deleted),
            ] {
                let change = atoll_store::SandboxChange::new(State::Running, state);
                assert!(store.sandbox_state_update(id, &change).await.unwrap());
            }
            store.close().await;
        })
        .await;
    assert_eq!(
        (stack.recovered.swept, stack.recovered.strays, stack.recovered.adopted),
        (2, 1, 0)
    );
    assert_eq!(stack.machines().await, [] as [MachineId; 0]);
    let all = SandboxFilter {
        include_failed: true,
        ..SandboxFilter::default()
    };
    let listed: Vec<SandboxId> = stack
        .control
        .sandbox_list(&stack.admin, &all)
        .await
        .unwrap()
        .iter()
        .map(|view| view.id)
        .collect();
    assert_eq!(listed, []);
    // The templates are still there.
    stack.sandbox().await;
    stack.stop().await;
}
