//! The link itself: a host that is replaced, an agent that dies.

use std::time::Duration;

use atoll_guest_link::GuestError;
use atoll_protocol::types::Program;

use crate::guest::{Ended, Guest, argv, eventually, shell};

#[tokio::test]
async fn a_new_host_finds_the_agent_whatever_the_old_one_was_doing() {
    let guest = Guest::boot().await;
    let flood = guest.link.exec(&shell("yes")).await.expect("a flood");
    let mut kept = shell("sleep 2; echo survived");
    kept.detach = true;
    let kept = guest
        .link
        .exec(&kept)
        .await
        .expect("a detached command")
        .started()
        .exec_id;
    // The old host stops reading in the middle of everything.
    guest.link.close();
    eventually("the old link is dead", || async { guest.link.is_lost() }).await;
    let link = guest.attach_again().await;
    link.ping(Duration::from_secs(10))
        .await
        .expect("the agent answers the new host");
    assert!(matches!(Ended::of(flood).await, Err(GuestError::Lost { .. })));
    let ended = Ended::of(link.exec_attach(kept).await.expect("it lives"))
        .await
        .expect("its end");
    assert_eq!(ended.text(), "survived\n");
    eventually("the flood has ended with its caller", || async {
        link.stats().await.expect("stats").processes == 1
    })
    .await;
}

#[tokio::test]
async fn an_agent_that_dies_is_never_a_success() {
    let guest = Guest::boot().await;
    let session = guest.link.exec(&shell("sleep 30")).await.expect("it starts");
    let waiting = tokio::spawn(Ended::of(session));
    let link = guest.link.clone();
    drop(guest);
    let ended = waiting.await.expect("the waiter ends");
    assert!(matches!(ended, Err(GuestError::Lost { .. })), "{ended:?}");
    assert!(matches!(link.stats().await, Err(GuestError::Lost { .. })));
    assert!(matches!(
        link.ping(Duration::from_secs(1)).await,
        Err(GuestError::Lost { .. })
    ));
}

#[tokio::test]
async fn sixty_four_commands_at_once_many_times() {
    let guest = Guest::boot().await;
    for _ in 0..5 {
        let calls = (0..64).map(|_| guest.exec(argv(&["true"])));
        assert!(futures_util::future::join_all(calls).await.iter().all(Ended::ok));
    }
}

#[tokio::test]
async fn the_agent_answers_while_the_machine_is_busy() {
    let guest = Guest::boot().await;
    let mut busy = shell("for i in $(seq 64); do (while :; do :; done) & done; wait");
    busy.timeout_ms = Some(20_000);
    let session = guest.link.exec(&busy).await.expect("it starts");
    eventually("all run", || async {
        guest.link.stats().await.expect("stats").processes >= 65
    })
    .await;
    for _ in 0..5 {
        guest
            .link
            .ping(Duration::from_secs(1))
            .await
            .expect("an answer within a second");
        guest.link.file_list("/", None, 100).await.expect("a list");
    }
    drop(session);
    eventually("all ended", || async {
        guest.link.stats().await.expect("stats").processes == 1
    })
    .await;
    let Program::Shell(_) = busy.program else {
        unreachable!()
    };
}
