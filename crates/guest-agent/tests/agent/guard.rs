//! Memory and processes run out: the greediest goes, everybody else stays.

use std::collections::BTreeMap;

use atoll_guest_link::GuestError;
use atoll_model::Outcome;
use atoll_protocol::types::{ContextCreate, GuestCode};

use crate::guest::{Guest, argv, eventually, shell};

#[tokio::test]
async fn a_cell_that_eats_memory_dies_of_it_and_says_so() {
    let guest = Guest::with_limits(256, 1024).await;
    guest.warm().await;
    let (hog, other) = (guest.context().await, guest.context().await);
    guest.cell(other, "x = 1").await;
    let cell = guest
        .cell(
            hog,
            "print('begun')\nb = []\nwhile True: b.append(bytearray(5_000_000))",
        )
        .await;
    match cell.end.outcome {
        Outcome::Oom {
            limit_mb,
            peak_mb,
            context_restarted,
        } => {
            assert!(context_restarted && limit_mb == 256 && peak_mb > 150, "{peak_mb}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(cell.stdout, "begun\n");
    assert_eq!(guest.cell(other, "print(x)").await.stdout, "1\n");
    assert_eq!(guest.cell(hog, "print('again')").await.stdout, "again\n");
}

#[tokio::test]
async fn a_command_that_eats_memory_dies_of_it() {
    let guest = Guest::with_limits(192, 1024).await;
    let ended = guest
        .exec(argv(&[
            "python3",
            "-c",
            "b = []\nwhile True: b.append(bytearray(5_000_000))",
        ]))
        .await;
    assert!(
        matches!(ended.end.outcome, Outcome::Oom { limit_mb: 192, .. }),
        "{:?}",
        ended.end
    );
    assert_eq!(ended.end.exit_code, None);
}

#[tokio::test]
async fn a_hog_of_many_processes_takes_nobody_else_with_it() {
    let guest = Guest::with_limits(256, 1024).await;
    guest.warm().await;
    let context = guest.context().await;
    guest.cell(context, "x = bytearray(30_000_000)").await;
    let code =
        "import os\nfor _ in range(3):\n  if os.fork() == 0: break\nb = []\nwhile True: b.append(bytearray(1_000_000))";
    let mut hog = argv(&["python3", "-c", code]);
    hog.timeout_ms = Some(20_000);
    let ended = guest.exec(hog).await;
    assert!(
        matches!(ended.end.outcome, Outcome::Oom { limit_mb: 256, .. }),
        "{:?}",
        ended.end
    );
    eventually("agent, interpreter and context are left", || async {
        guest.link.stats().await.expect("stats").processes == 3
    })
    .await;
    let cell = guest.cell(context, "print(len(x))").await;
    assert_eq!((cell.end.outcome, cell.stdout.as_str()), (Outcome::Ok, "30000000\n"));
}

#[tokio::test]
async fn a_context_that_has_no_room_is_refused_and_nobody_is_ended_for_it() {
    let guest = Guest::with_limits(1024, 1024).await;
    guest.warm().await;
    let full = guest.context().await;
    let cell = guest.cell(full, "x = bytearray(920 << 20); print('held')").await;
    assert_eq!((cell.end.outcome, cell.stdout.as_str()), (Outcome::Ok, "held\n"));
    let create = ContextCreate {
        language: "python".to_owned(),
        cwd: None,
        env: BTreeMap::new(),
    };
    match guest.link.context_create(&create).await {
        Err(GuestError::Refused(refusal)) => {
            assert_eq!(refusal.code, GuestCode::TooMany);
            assert!(refusal.message.contains("of 1024 MiB are in use"), "{refusal}");
        }
        other => panic!("not refused: {other:?}"),
    }
    assert_eq!(guest.cell(full, "print(len(x)); del x").await.stdout, "964689920\n");
    guest.context().await;
}

#[tokio::test]
async fn a_fork_bomb_ends_and_the_agent_lives() {
    let guest = Guest::with_limits(1024, 200).await;
    let mut bomb = shell("while :; do sleep 100 & done");
    bomb.timeout_ms = Some(20_000);
    let ended = guest.exec(bomb).await;
    assert_eq!((ended.end.outcome, ended.end.signal), (Outcome::Ok, Some(9)));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("200 processes"));
    eventually("all of it is gone", || async {
        guest.link.stats().await.expect("stats").processes == 1
    })
    .await;
    assert!(guest.exec(argv(&["true"])).await.ok());
}
