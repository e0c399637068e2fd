//! What a create promises.

use std::collections::BTreeMap;

use atoll_control::{CreateSandbox, SandboxFilter};
use atoll_model::{ErrorCode, Isolation, State};
use atoll_testkit::{Fault, Stack, Step};

use crate::{code, sh, soon};

fn keyed(key: &str) -> CreateSandbox {
    CreateSandbox {
        idempotency_key: Some(key.to_owned()),
        ..CreateSandbox::default()
    }
}

fn pair(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}

#[tokio::test]
async fn a_sandbox_runs_when_its_create_is_answered_and_shows_what_was_asked_for() {
    let stack = Stack::start().await;
    let mut metadata = pair("tool", "x");
    metadata.extend(pair("kind", "forged"));
    metadata.extend(pair("secret.token", "hush"));
    let wanted = CreateSandbox {
        metadata,
        labels: pair("team", "a"),
        env: pair("GREETING", "$(touch /tmp/pwn)'\"; %s\n日本").into(),
        memory_mb: Some(512),
        ttl_seconds: Some(77),
        ..CreateSandbox::default()
    };
    let created = soon(stack.control.sandbox_create(&stack.admin, wanted)).await.unwrap();
    assert_eq!(
        (created.state, created.memory_mb, created.ttl_seconds),
        (State::Running, 512, 77)
    );
    assert_eq!(created.boot_mode, "restore");
    assert!(created.boot_ms.is_some());
    let metadata: Vec<&str> = created.metadata.keys().map(String::as_str).collect();
    assert_eq!(metadata, ["tool", "workspace"]);
    assert_eq!(
        stack.control.sandbox_get(&stack.admin, created.id).await.unwrap(),
        created
    );
    let greeting = sh(&stack, created.id, "printf %s \"$GREETING\"").await.unwrap();
    assert_eq!(greeting.stdout.text, "$(touch /tmp/pwn)'\"; %s\n日本");
    stack.stop().await;
}

#[tokio::test]
async fn lists_are_newest_first_and_hold_what_the_filter_wants() {
    let stack = Stack::start().await;
    let first = stack.sandbox().await;
    let labelled = CreateSandbox {
        labels: pair("team", "a"),
        ..CreateSandbox::default()
    };
    let second = stack.control.sandbox_create(&stack.admin, labelled).await.unwrap().id;
    let ids = async |filter: SandboxFilter| -> Vec<_> {
        let list = stack.control.sandbox_list(&stack.admin, &filter).await.unwrap();
        list.into_iter().map(|view| view.id).collect()
    };
    assert_eq!(ids(SandboxFilter::default()).await, [second, first]);
    let team = SandboxFilter {
        labels: pair("team", "a"),
        ..SandboxFilter::default()
    };
    assert_eq!(ids(team).await, [second]);
    stack.stop().await;
}

#[tokio::test]
async fn one_idempotency_key_is_one_sandbox_however_often_and_at_once_it_is_asked_for() {
    let stack = Stack::start().await;
    let mut creates = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (control, admin) = (stack.control.clone(), stack.admin.clone());
        creates.spawn(async move { control.sandbox_create(&admin, keyed("once")).await.unwrap().id });
    }
    let ids = soon(creates.join_all()).await;
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(stack.machines().await.len(), 1);
    let other = CreateSandbox {
        ttl_seconds: Some(5),
        ..keyed("once")
    };
    assert_eq!(
        code(stack.control.sandbox_create(&stack.admin, other).await),
        ErrorCode::Conflict
    );
    stack.stop().await;
}

#[tokio::test]
async fn a_create_that_can_not_be_is_refused_before_anything_is_made() {
    let stack = Stack::start().await;
    let base = CreateSandbox::default;
    let wrong = [
        (
            CreateSandbox {
                template: Some("../keys".into()),
                ..base()
            },
            ErrorCode::TemplateUnknown,
            "template",
        ),
        (
            CreateSandbox {
                isolation: Some(Isolation::Vm),
                ..base()
            },
            ErrorCode::IsolationUnavailable,
            "isolation",
        ),
        (
            CreateSandbox {
                memory_mb: Some(1),
                ..base()
            },
            ErrorCode::InvalidRequest,
            "memory_mb",
        ),
        (
            CreateSandbox {
                cpu: Some(1000),
                ..base()
            },
            ErrorCode::InvalidRequest,
            "cpu",
        ),
        (
            CreateSandbox {
                metadata: pair("a\nb", "x"),
                ..base()
            },
            ErrorCode::InvalidRequest,
            "metadata",
        ),
        (
            CreateSandbox {
                env: pair("A=B", "x").into(),
                ..base()
            },
            ErrorCode::InvalidRequest,
            "env",
        ),
        (keyed(&"k".repeat(300)), ErrorCode::InvalidRequest, "idempotency_key"),
    ];
    for (wanted, code, field) in wrong {
        let refusal = stack.control.sandbox_create(&stack.admin, wanted).await.unwrap_err();
        assert_eq!(
            (refusal.code, refusal.field.as_deref()),
            (code, Some(field)),
            "{refusal}"
        );
    }
    assert_eq!(stack.machines().await, []);
    stack.stop().await;
}

#[tokio::test]
async fn a_full_host_says_so_and_takes_the_next_one_when_there_is_room_again() {
    let stack = Stack::start_with(|config| config.max_live_sandboxes = 1).await;
    let wanted = || CreateSandbox::default();
    let first = stack
        .control
        .sandbox_create(&stack.admin, keyed("first"))
        .await
        .unwrap()
        .id;
    let refusal = stack.control.sandbox_create(&stack.admin, wanted()).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::NoCapacity);
    assert!(refusal.retry_after.is_some());
    // The very same create is answered: the sandbox is there.
    assert_eq!(
        stack
            .control
            .sandbox_create(&stack.admin, keyed("first"))
            .await
            .unwrap()
            .id,
        first
    );
    stack.control.sandbox_delete(&stack.admin, first).await.unwrap();
    stack.sandbox().await;
    stack.stop().await;
}

#[tokio::test]
async fn too_little_memory_or_disk_is_refused_by_its_own_code() {
    for (reserve, code) in [
        ("memory", ErrorCode::NoCapacity),
        ("disk", ErrorCode::InsufficientStorage),
    ] {
        let stack = Stack::start_with(|config| match reserve {
            "memory" => config.memory_reserve_mb = u64::MAX >> 20,
            _ => config.disk_reserve_mb = u64::MAX >> 20,
        })
        .await;
        let refusal = stack
            .control
            .sandbox_create(&stack.admin, CreateSandbox::default())
            .await
            .unwrap_err();
        assert_eq!(refusal.code, code);
        assert!(refusal.retry_after.is_some());
        stack.stop().await;
    }
}

#[tokio::test]
async fn promised_disks_are_refused_before_anything_is_made_and_free_with_their_sandbox() {
    let stack = Stack::start_with(|config| config.disk_overcommit = 1).await;
    let most = 1 << 20;
    let wanted = |disk_mb: u64| CreateSandbox {
        disk_mb: Some(disk_mb),
        ..CreateSandbox::default()
    };
    let mut made = Vec::new();
    let refusal = loop {
        match stack.control.sandbox_create(&stack.admin, wanted(most)).await {
            Ok(view) => made.push(view.id),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(
        (refusal.code, refusal.field.as_deref()),
        (ErrorCode::InsufficientStorage, Some("disk_mb"))
    );
    assert_eq!(stack.machines().await.len(), made.len());
    stack.stop().await;
}

#[tokio::test]
async fn a_caller_who_goes_away_during_a_create_finds_the_sandbox_in_the_list() {
    let stack = Stack::start().await;
    let (control, admin) = (&stack.control, &stack.admin);
    stack.engine.fail(Step::Restore, Fault::Hold);
    let id = {
        let mut create = std::pin::pin!(control.sandbox_create(admin, CreateSandbox::default()));
        // Polled until the sandbox is recorded, then dropped as a server drops the future of a client that hung up.
        loop {
            tokio::select! {
                biased;
                _ = &mut create => panic!("the create was answered without a machine"),
                () = tokio::task::yield_now() => {}
            }
            let list = control.sandbox_list(admin, &SandboxFilter::default()).await.unwrap();
            if let Some(view) = list.first() {
                break view.id;
            }
        }
    };
    let mut events = control.event_follow(admin, id).await.unwrap();
    stack.engine.release();
    assert_eq!(soon(events.next()).await.unwrap().kind, "sandbox.running");
    assert_eq!(sh(&stack, id, "echo here").await.unwrap().stdout.text, "here\n");
    stack.stop().await;
}

#[tokio::test]
async fn a_delete_during_a_create_wins() {
    let stack = Stack::start().await;
    stack.engine.fail(Step::Restore, Fault::Hang);
    let (control, admin) = (stack.control.clone(), stack.admin.clone());
    let create = tokio::spawn(async move { control.sandbox_create(&admin, CreateSandbox::default()).await });
    let id = loop {
        let list = stack
            .control
            .sandbox_list(&stack.admin, &SandboxFilter::default())
            .await
            .unwrap();
        match list.first() {
            Some(view) => break view.id,
            None => tokio::task::yield_now().await,
        }
    };
    soon(stack.control.sandbox_delete(&stack.admin, id)).await.unwrap();
    assert_eq!(code(soon(create).await.unwrap()), ErrorCode::SandboxGone);
    stack.stop().await;
}
