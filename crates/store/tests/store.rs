//! The store on a real file.

use std::collections::BTreeMap;

use atoll_model::{GoneReason, Isolation, KeyId, Limits, SandboxId, SandboxSpec, Scope, State, WorkspaceId};
use atoll_store::{Earlier, Idempotency, Inserted, KeyRow, Origin, SandboxChange, SandboxRow, Store};
use time::{Duration, OffsetDateTime};

struct Fixture {
    store: Store,
    workspace: WorkspaceId,
    folder: tempfile::TempDir,
}

/// To the millisecond, as columns hold it.
fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc().replace_millisecond(7).unwrap()
}

async fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("atoll.db")).await.unwrap();
    let workspace = store.workspace_ensure("default", now()).await.unwrap().id;
    Fixture {
        store,
        workspace,
        folder,
    }
}

fn sandbox(workspace: WorkspaceId) -> SandboxRow {
    let pair = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    SandboxRow {
        id: SandboxId::random(),
        workspace,
        state: State::Creating,
        spec: SandboxSpec {
            template: "base".parse().unwrap(),
            ttl_seconds: 60,
            persistent: false,
            metadata: pair("tool", "a'; DROP TABLE sandboxes; --"),
            labels: pair("team", "日本"),
            env: pair("K", "$(touch /tmp/pwn)'\"; %s\n").into(),
            limits: Limits::default(),
            isolation: Some(Isolation::Kernel),
        },
        origin: Origin {
            bake: "b".into(),
            engine: "fake".into(),
            isolation: Isolation::Kernel,
        },
        boot_ms: None,
        gone: None,
        failure: None,
        created_at: OffsetDateTime::from_unix_timestamp(1_700_000_000).unwrap(),
        ended_at: None,
    }
}

#[tokio::test]
async fn a_sandbox_comes_back_as_it_was_after_the_file_is_opened_again() {
    let Fixture {
        store,
        workspace,
        folder,
    } = fixture().await;
    let row = sandbox(workspace);
    assert_eq!(store.sandbox_insert(&row, None).await.unwrap(), Inserted::New);
    store.close().await;

    let store = Store::open(&folder.path().join("atoll.db")).await.unwrap();
    assert_eq!(store.sandbox_get(workspace, row.id).await.unwrap(), Some(row.clone()));
    assert_eq!(store.sandbox_list_all(&[State::Creating]).await.unwrap(), [row]);
}

#[tokio::test]
async fn a_move_needs_the_state_that_it_starts_from() {
    let Fixture {
        store,
        workspace,
        folder: _folder,
    } = fixture().await;
    let row = sandbox(workspace);
    store.sandbox_insert(&row, None).await.unwrap();

    let mut run = SandboxChange::new(State::Creating, State::Running);
    run.boot_ms = Some(42);
    assert!(store.sandbox_state_update(row.id, &run).await.unwrap());
    assert!(!store.sandbox_state_update(row.id, &run).await.unwrap());

    let mut fail = SandboxChange::new(State::Running, State::Failed);
    fail.gone = Some(GoneReason::MachineDied);
    fail.ended_at = Some(OffsetDateTime::from_unix_timestamp(1_700_000_100).unwrap());
    assert!(store.sandbox_state_update(row.id, &fail).await.unwrap());

    let found = store.sandbox_get(workspace, row.id).await.unwrap().unwrap();
    assert_eq!(
        (found.state, found.boot_ms, found.gone),
        (State::Failed, Some(42), Some(GoneReason::MachineDied))
    );
    assert_eq!(found.ended_at, fail.ended_at);
}

#[tokio::test]
async fn another_workspace_sees_nothing_of_a_sandbox() {
    let Fixture {
        store,
        workspace,
        folder: _folder,
    } = fixture().await;
    let other = store.workspace_ensure("other", now()).await.unwrap().id;
    let row = sandbox(workspace);
    store.sandbox_insert(&row, None).await.unwrap();
    store
        .event_insert(row.id, now(), "sandbox.running", &serde_json::json!({}))
        .await
        .unwrap();

    assert_eq!(store.sandbox_get(other, row.id).await.unwrap(), None);
    assert_eq!(store.sandbox_list(other, &[State::Creating], 10).await.unwrap(), []);
    assert_eq!(store.event_list(other, row.id, 10).await.unwrap(), []);
    assert_eq!(store.event_list(workspace, row.id, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn lists_are_newest_first_and_hold_only_the_wanted_states() {
    let Fixture {
        store,
        workspace,
        folder: _folder,
    } = fixture().await;
    let rows: Vec<SandboxRow> = (0..3).map(|_| sandbox(workspace)).collect();
    for row in &rows {
        store.sandbox_insert(row, None).await.unwrap();
    }
    let stop = SandboxChange::new(State::Creating, State::Failed);
    store.sandbox_state_update(rows[1].id, &stop).await.unwrap();

    let listed = store.sandbox_list(workspace, &[State::Creating], 10).await.unwrap();
    let ids: Vec<SandboxId> = listed.iter().map(|row| row.id).collect();
    assert_eq!(ids, [rows[2].id, rows[0].id]);
    assert_eq!(
        store
            .sandbox_list(workspace, &[State::Creating], 1)
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn one_idempotency_key_makes_one_sandbox() {
    let Fixture {
        store,
        workspace,
        folder: _folder,
    } = fixture().await;
    let key = |request: u8| Idempotency {
        key: "once".into(),
        request: [request; 32],
    };
    let first = sandbox(workspace);
    assert_eq!(
        store.sandbox_insert(&first, Some(&key(1))).await.unwrap(),
        Inserted::New
    );

    for (request, same_request) in [(1, true), (2, false)] {
        let earlier = Earlier {
            sandbox: first.id,
            same_request,
        };
        assert_eq!(
            store.idempotency_get(workspace, &key(request)).await.unwrap(),
            Some(earlier)
        );
        let again = sandbox(workspace);
        assert_eq!(
            store.sandbox_insert(&again, Some(&key(request))).await.unwrap(),
            Inserted::Earlier(earlier)
        );
        assert_eq!(store.sandbox_get(workspace, again.id).await.unwrap(), None);
    }

    let mut fail = SandboxChange::new(State::Running, State::Failed);
    fail.forget_idempotency = true;
    // One transaction: a move that is not made frees nothing.
    assert!(!store.sandbox_state_update(first.id, &fail).await.unwrap());
    assert!(store.idempotency_get(workspace, &key(1)).await.unwrap().is_some());
    fail.from = State::Creating;
    assert!(store.sandbox_state_update(first.id, &fail).await.unwrap());
    assert_eq!(store.idempotency_get(workspace, &key(1)).await.unwrap(), None);
    assert_eq!(
        store.sandbox_insert(&sandbox(workspace), Some(&key(2))).await.unwrap(),
        Inserted::New
    );
}

#[tokio::test]
async fn a_purge_takes_only_what_ended_before_and_all_that_hangs_on_it() {
    let Fixture {
        store,
        workspace,
        folder: _folder,
    } = fixture().await;
    let (old, live) = (sandbox(workspace), sandbox(workspace));
    let key = Idempotency {
        key: "k".into(),
        request: [0; 32],
    };
    store.sandbox_insert(&old, Some(&key)).await.unwrap();
    store.sandbox_insert(&live, None).await.unwrap();
    store
        .event_insert(old.id, now(), "x", &serde_json::json!({"a": 1}))
        .await
        .unwrap();
    let mut end = SandboxChange::new(State::Creating, State::Failed);
    end.ended_at = Some(now() - Duration::days(8));
    store.sandbox_state_update(old.id, &end).await.unwrap();

    assert_eq!(store.sandbox_purge(now() - Duration::days(7)).await.unwrap(), 1);
    assert_eq!(store.sandbox_get(workspace, old.id).await.unwrap(), None);
    assert!(store.sandbox_get(workspace, live.id).await.unwrap().is_some());
    assert_eq!(
        store.sandbox_insert(&sandbox(workspace), Some(&key)).await.unwrap(),
        Inserted::New
    );
}

#[tokio::test]
async fn a_revoked_key_is_found_as_revoked_and_not_listed() {
    let Fixture {
        store,
        workspace,
        folder: _folder,
    } = fixture().await;
    assert!(!store.key_exists().await.unwrap());
    let key = KeyRow {
        id: KeyId::random(),
        workspace,
        hash: [3; 32],
        prefix: "atl_01234567".into(),
        name: "ci".into(),
        scope: Scope::ReadOnly,
        created_at: OffsetDateTime::from_unix_timestamp(1_700_000_000).unwrap(),
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    };
    store.key_insert(&key).await.unwrap();
    assert!(store.key_exists().await.unwrap());
    assert_eq!(store.key_list(workspace).await.unwrap(), std::slice::from_ref(&key));

    let other = store.workspace_ensure("other", now()).await.unwrap().id;
    assert_eq!(store.key_revoke(other, &key.prefix, now()).await.unwrap(), None);
    assert!(store.key_revoke(workspace, &key.prefix, now()).await.unwrap().is_some());
    assert_eq!(store.key_revoke(workspace, &key.prefix, now()).await.unwrap(), None);
    assert_eq!(store.key_list(workspace).await.unwrap(), []);
    assert!(store.key_get(&key.hash).await.unwrap().unwrap().revoked_at.is_some());
}

#[tokio::test]
async fn writes_at_the_same_time_all_arrive() {
    let Fixture {
        store,
        workspace,
        folder: _folder,
    } = fixture().await;
    let mut writes = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let store = store.clone();
        writes.spawn(async move {
            let row = sandbox(workspace);
            store.sandbox_insert(&row, None).await.unwrap();
            store
                .sandbox_state_update(row.id, &SandboxChange::new(State::Creating, State::Running))
                .await
                .unwrap()
        });
    }
    assert!(writes.join_all().await.into_iter().all(|moved| moved));
    assert_eq!(
        store
            .sandbox_list(workspace, &[State::Running], 100)
            .await
            .unwrap()
            .len(),
        50
    );
}
