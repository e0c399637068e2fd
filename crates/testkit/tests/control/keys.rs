//! Keys, scopes and workspaces.

use atoll_control::{
    Caller, ContextRequest, CreateSandbox, ExecCollect, ExecRequest, LifecyclePatch, LogStream, SandboxFilter,
};
use atoll_model::{ContextId, ErrorCode, ExecId, Scope, WorkspaceId};
use atoll_testkit::Stack;
use time::Duration;

use crate::{code, soon};

#[tokio::test]
async fn a_key_works_under_both_of_its_prefixes_until_it_is_revoked() {
    let stack = Stack::start().await;
    let control = &stack.control;
    let created = control
        .key_create(&stack.admin, "ci", Scope::Full, Some(Duration::days(30)))
        .await;
    let (view, text) = created.unwrap();
    assert!(text.expose().starts_with(&view.prefix) && view.expires_at.is_some());
    let caller = control.authenticate(text.expose()).await.unwrap();
    assert_eq!(caller.scope, Scope::Full);
    let other = text.expose().replacen("atl_", "e2b_", 1);
    assert_eq!(control.authenticate(&other).await.unwrap(), caller);
    assert_eq!(control.me(&caller).await.unwrap().key.name, "ci");

    assert_eq!(
        code(control.key_revoke(&caller, &view.prefix).await),
        ErrorCode::Forbidden
    );
    assert_eq!(
        code(control.key_revoke(&stack.admin, &stack.admin.key_prefix).await),
        ErrorCode::Conflict
    );
    let same = control.authenticate(text.expose()).await.unwrap();
    control.key_revoke(&stack.admin, &view.prefix).await.unwrap();
    for open in [&caller, &same] {
        soon(open.key_end.reached()).await;
    }
    for token in [text.expose(), &other, "", "Bearer", "atl_"] {
        assert_eq!(code(control.authenticate(token).await), ErrorCode::Unauthorized);
    }
    assert_eq!(control.key_list(&stack.admin).await.unwrap().len(), 1);
    let past = control
        .key_create(&stack.admin, "late", Scope::Full, Some(Duration::seconds(-1)))
        .await;
    assert_eq!(code(past), ErrorCode::InvalidRequest);
    stack.stop().await;
}

#[tokio::test]
async fn a_key_ends_when_it_expires_and_its_revocation_does_not_hang_on_the_caller() {
    let stack = Stack::start().await;
    let control = &stack.control;
    let new = async |name: &str, expires_in| {
        let created = control.key_create(&stack.admin, name, Scope::Full, expires_in).await;
        let (view, text) = created.unwrap();
        (view, control.authenticate(text.expose()).await.unwrap())
    };
    let (_, brief) = new("brief", Some(Duration::milliseconds(300))).await;
    soon(brief.key_end.reached()).await;
    let (view, caller) = new("dropped", None).await;
    {
        // Polled once, then dropped as a server drops the future of a client that hung up.
        let mut revoke = std::pin::pin!(control.key_revoke(&stack.admin, &view.prefix));
        let polled = futures_util::poll!(&mut revoke);
        assert!(polled.is_pending(), "{polled:?}");
    }
    soon(caller.key_end.reached()).await;
    stack.stop().await;
}

#[tokio::test]
async fn a_read_only_key_looks_and_changes_nothing() {
    let stack = Stack::start().await;
    let control = &stack.control;
    let id = stack.sandbox().await;
    let (_, text) = control
        .key_create(&stack.admin, "look", Scope::ReadOnly, None)
        .await
        .unwrap();
    let looker = control.authenticate(text.expose()).await.unwrap();
    assert_eq!(
        control
            .sandbox_list(&looker, &SandboxFilter::default())
            .await
            .unwrap()
            .len(),
        1
    );
    assert!(control.file_stat(&looker, id, "/etc/passwd").await.is_ok());
    assert!(control.event_list(&looker, id, 10).await.is_ok());
    let run = control.exec_run(&looker, id, ExecRequest::shell("true"), ExecCollect::default());
    assert_eq!(code(run.await), ErrorCode::Forbidden);
    assert_eq!(
        code(control.sandbox_create(&looker, CreateSandbox::default()).await),
        ErrorCode::Forbidden
    );
    assert_eq!(code(control.sandbox_delete(&looker, id).await), ErrorCode::Forbidden);
    assert_eq!(
        code(control.file_remove(&looker, id, "/tmp/x").await),
        ErrorCode::Forbidden
    );
    assert_eq!(code(control.build_start(&looker, "base").await), ErrorCode::Forbidden);
    assert_eq!(code(control.key_list(&looker).await), ErrorCode::Forbidden);
    stack.stop().await;
}

#[tokio::test]
async fn what_belongs_to_another_workspace_is_not_found_by_any_call() {
    let stack = Stack::start().await;
    let control = &stack.control;
    let id = stack.sandbox().await;
    let stranger = Caller {
        workspace: WorkspaceId::random(),
        ..stack.admin.clone()
    };
    let (exec, context) = (ExecId::random(), ContextId::random());
    let patch = LifecyclePatch::default();
    let python = ContextRequest {
        language: "python".into(),
        ..ContextRequest::default()
    };
    let answers = [
        code(control.sandbox_get(&stranger, id).await),
        code(control.sandbox_delete(&stranger, id).await),
        code(control.lifecycle_get(&stranger, id).await),
        code(control.lifecycle_patch(&stranger, id, patch).await),
        code(
            control
                .exec_run(&stranger, id, ExecRequest::shell("true"), ExecCollect::default())
                .await,
        ),
        code(
            control
                .exec_start(&stranger, id, ExecRequest::shell("true"), false)
                .await,
        ),
        code(control.exec_attach(&stranger, id, exec).await),
        code(control.exec_list(&stranger, id).await),
        code(control.file_read(&stranger, id, "/etc/passwd", 0, None).await),
        code(control.file_stat(&stranger, id, "/").await),
        code(control.file_list(&stranger, id, "/", None, 1).await),
        code(control.file_remove(&stranger, id, "/tmp/x").await),
        code(control.context_create(&stranger, id, python).await),
        code(control.context_list(&stranger, id).await),
        code(control.context_close(&stranger, id, context).await),
        code(control.log_tail(&stranger, id, LogStream::Both).await),
        code(control.event_list(&stranger, id, 1).await),
        code(control.event_follow(&stranger, id).await),
        code(control.sandbox_usage(&stranger, id).await),
        code(control.sandbox_stats(&stranger, id).await),
    ];
    assert!(
        answers.iter().all(|answer| *answer == ErrorCode::NotFound),
        "{answers:?}"
    );
    assert_eq!(
        control
            .sandbox_list(&stranger, &SandboxFilter::default())
            .await
            .unwrap(),
        []
    );
    assert!(control.sandbox_get(&stack.admin, id).await.is_ok());
    stack.stop().await;
}
