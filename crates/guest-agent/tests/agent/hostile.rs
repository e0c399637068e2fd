//! Code that gets hold of the wire between the agent and its interpreters, or stops those.

use std::{collections::BTreeMap, time::Instant};

use atoll_guest_link::GuestError;
use atoll_model::{ContextId, Outcome};
use atoll_protocol::types::{ContextCreate, GuestCode, WarmRequest};

use crate::guest::{Guest, argv};

/// The bracket keeps the script from finding itself.
const STOP_ZYGOTE: &str = "for p in /proc/[0-9]*; do if grep -q '^PPid:.1$' $p/status && grep -q '[d]river.py' $p/cmdline; then kill -STOP ${p#/proc/}; fi; done";

/// Gives a cell its context's own control socket, as `wire`.
const WIRE: &str = "import os, stat, subprocess, sys, time
wire = os.dup(next(fd for fd in range(3, 50) if stat.S_ISSOCK(os.fstat(fd).st_mode)))
def message(text): return len(text).to_bytes(4, 'big') + text
";

async fn with_wire() -> (Guest, ContextId, ContextId) {
    let guest = Guest::boot().await;
    guest.warm().await;
    let (hostile, other) = (guest.context().await, guest.context().await);
    guest.cell(other, "x = 1").await;
    let cell = guest.cell(hostile, WIRE).await;
    assert_eq!(cell.end.outcome, Outcome::Ok, "{:?}", cell.end.error);
    (guest, hostile, other)
}

/// Everybody else goes on, and the context itself can be used again.
async fn assert_unharmed(guest: &Guest, hostile: ContextId, other: ContextId) {
    assert_eq!(guest.cell(other, "print(x)").await.stdout, "1\n");
    assert!(guest.exec(argv(&["true"])).await.ok());
    assert!(guest.link.stats().await.expect("stats").agent_rss_bytes < 64 << 20);
    guest.link.context_restart(hostile).await.expect("a restart");
    assert_eq!(guest.cell(hostile, "print('again')").await.stdout, "again\n");
}

#[tokio::test]
async fn one_who_speaks_without_end_on_the_wire_is_ended_at_the_deadline() {
    let (guest, hostile, other) = with_wire().await;
    for flood in [
        "message(b'no event') * 1000",
        "message(b'{\"event\":\"result\",\"cell\":1,\"bundle\":{}}') * 1000",
        "b'\\xff' * 65536",
    ] {
        let begun = Instant::now();
        let code =
            format!("{WIRE}flood = {flood}\nwhile True:\n  try: os.write(wire, flood)\n  except BaseException: pass");
        let cell = guest.cell_within(hostile, &code, 1000).await;
        assert_eq!(
            cell.end.outcome,
            Outcome::Timeout {
                timeout_ms: 1000,
                context_restarted: true
            }
        );
        assert!(begun.elapsed().as_secs() < 10, "{flood}: {:?}", begun.elapsed());
        assert_unharmed(&guest, hostile, other).await;
    }
}

#[tokio::test]
async fn one_who_speaks_for_a_dead_interpreter_does_not_keep_its_cell_alive() {
    let (guest, hostile, other) = with_wire().await;
    let begun = Instant::now();
    let code = "if os.fork() == 0:\n  while True: os.write(wire, message(b'{}') * 1000)\ntime.sleep(.2)\nos._exit(7)";
    let cell = guest.cell(hostile, code).await;
    assert_eq!(
        cell.end.outcome,
        Outcome::ContextDied {
            signal: None,
            exit_code: Some(7)
        }
    );
    assert!(begun.elapsed().as_secs() < 10);
    assert_unharmed(&guest, hostile, other).await;
}

#[tokio::test]
async fn output_that_goes_on_behind_a_cell_delays_nobody() {
    let (guest, hostile, other) = with_wire().await;
    let cell = guest
        .cell(
            hostile,
            "subprocess.Popen(['yes']); time.sleep(.1); result({'text/plain': 'r'})",
        )
        .await;
    assert_eq!((cell.end.outcome, cell.results.len()), (Outcome::Ok, 1));
    assert_unharmed(&guest, hostile, other).await;
}

#[tokio::test]
async fn a_stopped_interpreter_ends_at_the_deadline_however_long_the_code() {
    let (guest, hostile, other) = with_wire().await;
    let pid = guest.cell(hostile, "print(os.getpid())").await.stdout;
    guest.sh(&format!("kill -STOP {pid}")).await;
    let begun = Instant::now();
    let cell = guest
        .cell_within(hostile, &format!("#{}", "x".repeat(4_000_000)), 500)
        .await;
    assert_eq!(
        cell.end.outcome,
        Outcome::Timeout {
            timeout_ms: 500,
            context_restarted: true
        }
    );
    assert!(begun.elapsed().as_secs() < 10);
    assert_unharmed(&guest, hostile, other).await;
}

#[tokio::test]
async fn a_stopped_zygote_is_replaced_and_the_create_goes_on() {
    let (guest, hostile, other) = with_wire().await;
    guest.sh(STOP_ZYGOTE).await;
    let new = guest.context().await;
    assert_eq!(guest.cell(new, "print('new')").await.stdout, "new\n");
    assert_unharmed(&guest, hostile, other).await;
}

#[tokio::test]
async fn a_machine_with_a_stopped_zygote_is_thawed() {
    let (guest, hostile, other) = with_wire().await;
    guest.sh(STOP_ZYGOTE).await;
    guest.thaw(1024, 1024).await;
    assert_unharmed(&guest, hostile, other).await;
}

#[tokio::test]
async fn a_zygote_that_names_a_process_of_others_as_its_child_is_not_believed() {
    let guest = Guest::boot().await;
    guest.warm().await;
    let mut sleeper = argv(&["sleep", "30"]);
    sleeper.detach = true;
    let sleeper = guest.link.exec(&sleeper).await.expect("a command").started().pid;
    for foreign in [1, -1, sleeper] {
        let warm = WarmRequest {
            language: "python".to_owned(),
            argv: vec!["python3".to_owned(), guest.path("driver.py")],
            user: "0".to_owned(),
            code: format!("import os; os.fork = lambda: {foreign}"),
            timeout_ms: 20_000,
        };
        guest.link.warm(&warm).await.expect("a warm interpreter");
        let create = ContextCreate {
            language: "python".to_owned(),
            cwd: None,
            env: BTreeMap::new(),
        };
        let refused = guest.link.context_create(&create).await;
        assert!(matches!(refused, Err(GuestError::Refused(refusal)) if refusal.code == GuestCode::Internal));
    }
    assert!(guest.exec(argv(&["kill", "-0", &sleeper.to_string()])).await.ok());
}
