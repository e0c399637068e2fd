//! Commands.

use std::{collections::BTreeMap, time::Duration};

use atoll_guest_link::{ExecEvent, GuestError};
use atoll_model::{Outcome, OutputLimit};
use atoll_protocol::types::{ExecStart, GuestCode, TerminalSize};
use bytes::Bytes;

use crate::guest::{Ended, Guest, argv, eventually, shell};

#[tokio::test]
async fn output_and_exit_code_come_exactly() {
    let guest = Guest::boot().await;
    let ended = guest.sh(r"printf 'a\n\n\nb'; printf 'x\0y' >&2; exit 3").await;
    assert_eq!((&ended.stdout[..], &ended.stderr[..]), (&b"a\n\n\nb"[..], &b"x\0y"[..]));
    assert_eq!((ended.end.outcome, ended.end.exit_code), (Outcome::Ok, Some(3)));
}

#[tokio::test]
async fn all_output_comes_before_the_end_every_time() {
    let guest = Guest::boot().await;
    for _ in 0..10 {
        let ended = guest.sh("seq 1 200000; exit 3").await;
        assert_eq!(ended.text().lines().count(), 200_000);
        assert_eq!(ended.end.exit_code, Some(3));
    }
}

#[tokio::test]
async fn a_burst_is_no_fault() {
    let guest = Guest::boot().await;
    let path = guest.path("40k");
    std::fs::write(&path, vec![b'z'; 40_000]).expect("a file");
    assert_eq!(guest.exec(argv(&["cat", &path])).await.stdout.len(), 40_000);
}

#[tokio::test]
async fn a_command_without_input_reads_its_end_at_once() {
    let guest = Guest::boot().await;
    assert!(guest.exec(argv(&["cat"])).await.ok());
}

async fn with_input(guest: &Guest, mut start: ExecStart, input: Vec<u8>) -> Ended {
    start.stdin = true;
    let mut session = guest.link.exec(&start).await.expect("it starts");
    let stdin = session.take_stdin().expect("its input");
    let feed = async {
        stdin.write(Bytes::from(input)).await.expect("input is no error");
        stdin.end().await.expect("nor is its end");
    };
    let (_, ended) = tokio::join!(feed, Ended::of(session));
    ended.expect("it ends")
}

#[tokio::test]
async fn ten_mebibytes_of_input_arrive_and_a_command_that_reads_one_byte_ends() {
    let guest = Guest::boot().await;
    let input = vec![b'q'; 10 << 20];
    let counted = with_input(&guest, argv(&["wc", "-c"]), input.clone()).await;
    assert_eq!(counted.text().trim(), "10485760");
    let ended = with_input(&guest, argv(&["head", "-c1"]), input).await;
    assert_eq!((ended.text().as_str(), ended.ok()), ("q", true));
}

#[tokio::test]
async fn a_script_of_any_length_runs_and_an_argument_too_long_is_refused() {
    let guest = Guest::boot().await;
    let ended = guest.sh(&format!("echo '{}'", "x".repeat(300_000))).await;
    assert_eq!((ended.stdout.len(), ended.ok()), (300_001, true));
    let code = guest.refused(argv(&["echo", &"x".repeat(200_000)])).await;
    assert_eq!(code, GuestCode::ArgumentTooLong);
}

#[tokio::test]
async fn a_timeout_ends_the_whole_tree_and_keeps_the_output() {
    let guest = Guest::boot().await;
    let mut start = shell("echo begun; (setsid sh -c 'env -i setsid sleep 4321 & while :; do :; done' &) ; sleep 60");
    start.timeout_ms = Some(500);
    let ended = guest.exec(start).await;
    assert_eq!(ended.text(), "begun\n");
    assert_eq!(ended.end.exit_code, None);
    assert!(
        matches!(ended.end.outcome, Outcome::Timeout { timeout_ms: 500, .. }),
        "{:?}",
        ended.end
    );
    assert!(ended.end.duration_ms < 5000);
    let left = guest
        .sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c -e '[s]leep 4321' -e '[w]hile :'")
        .await;
    assert_eq!(left.text().trim(), "0");
    assert_eq!(guest.link.stats().await.expect("stats").zombies, 0);
}

#[tokio::test]
async fn a_caller_who_leaves_ends_the_tree() {
    let guest = Guest::boot().await;
    let session = guest
        .link
        .exec(&shell("(setsid sleep 60 &) ; sleep 60"))
        .await
        .expect("it starts");
    drop(session);
    eventually("only the agent is left", || async {
        guest.link.stats().await.expect("stats").processes == 1
    })
    .await;
}

#[tokio::test]
async fn a_caller_who_leaves_a_blocked_input_ends_the_tree() {
    let guest = Guest::boot().await;
    let mut start = shell("sleep 60");
    start.stdin = true;
    let mut session = guest.link.exec(&start).await.expect("it starts");
    let stdin = session.take_stdin().expect("its input");
    let writing = tokio::spawn(async move { stdin.write(Bytes::from(vec![0; 32 << 20])).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(session);
    writing.await.expect("the writer ends").expect("without an error");
    eventually("it ends", || async {
        guest.link.stats().await.expect("stats").processes == 1
    })
    .await;
}

#[tokio::test]
async fn no_zombie_is_left_and_no_exit_code_lost() {
    let guest = Guest::boot().await;
    for round in 0..5 {
        let calls = (0..64).map(|n| {
            let guest = &guest;
            async move { (n, guest.sh(&format!("exit {n}")).await.end.exit_code) }
        });
        for (n, code) in futures_util::future::join_all(calls).await {
            assert_eq!(code, Some(n), "round {round}");
        }
    }
    assert!(guest.sh("for i in $(seq 200); do (sleep 0.01 &) ; done").await.ok());
    eventually("no process but the agent", || async {
        let stats = guest.link.stats().await.expect("stats");
        stats.zombies == 0 && stats.processes == 1
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_started_is_said_in_kind() {
    let guest = Guest::boot().await;
    let script = guest.path("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").expect("a script");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    assert_eq!(guest.refused(argv(&["nope"])).await, GuestCode::CommandNotFound);
    assert_eq!(guest.refused(argv(&["/etc/passwd"])).await, GuestCode::NotExecutable);
    assert_eq!(guest.refused(argv(&[&script])).await, GuestCode::NotExecutable);
    assert_eq!(guest.refused(argv(&[])).await, GuestCode::Invalid);
    assert_eq!(guest.refused(argv(&[""])).await, GuestCode::Invalid);
    assert_eq!(guest.refused(argv(&["a\0b"])).await, GuestCode::CommandNotFound);
    assert_eq!(guest.refused(argv(&["echo", "a\0b"])).await, GuestCode::Invalid);
    assert!(guest.sh("").await.ok());
    let with = |change: fn(&mut ExecStart)| {
        let mut start = shell("true");
        change(&mut start);
        start
    };
    assert_eq!(
        guest.refused(with(|start| start.cwd = Some("/nowhere".into()))).await,
        GuestCode::Invalid
    );
    assert_eq!(
        guest
            .refused(with(|start| start.cwd = Some("/etc/passwd".into())))
            .await,
        GuestCode::Invalid
    );
    assert_eq!(
        guest.refused(with(|start| start.cwd = Some("tmp".into()))).await,
        GuestCode::Invalid
    );
    assert_eq!(
        guest
            .refused(with(|start| start.user = Some("nobody-here".into())))
            .await,
        GuestCode::Invalid
    );
    assert_eq!(
        guest.refused(with(|start| start.timeout_ms = Some(0))).await,
        GuestCode::Invalid
    );
    assert_eq!(
        guest.refused(with(|start| start.timeout_ms = Some(u64::MAX))).await,
        GuestCode::Invalid
    );
    let bad = |start: &mut ExecStart| start.env = BTreeMap::from([("A=B".to_owned(), String::new())]);
    assert_eq!(guest.refused(with(bad)).await, GuestCode::Invalid);
}

#[tokio::test]
async fn environment_and_names_are_never_read_by_a_shell() {
    let guest = Guest::boot().await;
    let value = "$(touch /tmp/atoll-pwned)'\"; %s\\n";
    let mut start = argv(&["printenv", "K"]);
    start.env = BTreeMap::from([("K".to_owned(), value.to_owned())]);
    assert_eq!(guest.exec(start).await.text(), format!("{value}\n"));
    assert!(!std::path::Path::new("/tmp/atoll-pwned").exists());
}

#[tokio::test]
async fn the_surroundings_of_a_command_are_its_users() {
    let guest = Guest::boot().await;
    let ended = guest
        .sh("echo $HOME $USER $LOGNAME $MACHINE $LANG; pwd; umask; ulimit -c >/dev/null; ls -l /proc/self/fd | wc -l")
        .await;
    let text = ended.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with(" yes C.UTF-8"), "{text}");
    assert_eq!(lines[2], "0022");
    assert_eq!(
        lines[3], "5",
        "nothing but standard streams (and the listing itself) is inherited"
    );
}

#[tokio::test]
async fn one_that_goes_on_writing_when_its_command_ends_delays_nobody() {
    let guest = Guest::boot().await;
    let begun = std::time::Instant::now();
    for script in ["yes & yes >&2 & sleep 0.1", "yes & sleep 0.1; exit 3"] {
        let ended = guest.sh(script).await;
        assert_eq!(ended.end.outcome, Outcome::Ok);
    }
    assert!(begun.elapsed().as_secs() < 10);
    assert!(guest.link.stats().await.expect("stats").agent_rss_bytes < 32 << 20);
}

#[tokio::test]
async fn a_service_left_behind_lives_on_and_delays_nobody() {
    let guest = Guest::boot().await;
    let ended = guest
        .sh("(while :; do echo tick; sleep 0.05; done) & echo started")
        .await;
    assert!(ended.ok() && ended.end.duration_ms < 5000);
    assert!(ended.text().starts_with("started") || ended.text().starts_with("tick"));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(
        guest.link.stats().await.expect("stats").processes >= 2,
        "its output is still read"
    );
}

#[tokio::test]
async fn what_finishes_with_the_command_is_still_heard() {
    let guest = Guest::boot().await;
    let mut start = argv(&["bash", "-c", "exec > >(sleep 0.02; cat); echo late"]);
    start.timeout_ms = Some(10_000);
    assert_eq!(guest.exec(start).await.text(), "late\n");
}

#[tokio::test]
async fn kept_output_has_head_and_tail_and_a_file() {
    let guest = Guest::boot().await;
    let mut start = shell("seq 1 100000");
    start.keep = Some(OutputLimit(1000));
    let ended = guest.exec(start).await;
    let text = ended.text();
    assert!(
        text.starts_with("1\n2\n") && text.ends_with("99999\n100000\n") && text.len() < 1300,
        "{text}"
    );
    assert!(ended.end.stdout.truncated);
    assert_eq!(ended.end.stdout.total_bytes, 588_895);
    let path = ended.end.stdout.spill_path.expect("a file");
    assert!(text.contains(&path));
    let mut file = guest
        .link
        .file_read(&path, 588_895 - 7, Some(7))
        .await
        .expect("it can be read");
    assert_eq!(file.next().await.expect("a piece").as_deref(), Some(&b"100000\n"[..]));
}

#[tokio::test]
async fn endless_output_ends_with_its_deadline_and_leaves_the_agent_small() {
    let guest = Guest::boot().await;
    let mut start = shell("yes");
    start.keep = Some(OutputLimit::default());
    start.timeout_ms = Some(1500);
    let ended = guest.exec(start).await;
    assert!(matches!(ended.end.outcome, Outcome::Timeout { .. }));
    assert!(ended.end.stdout.truncated && ended.stdout.len() < (1 << 20) + 300);
    assert!(guest.link.stats().await.expect("stats").agent_rss_bytes < 24 << 20);
}

#[tokio::test]
async fn a_reader_who_is_slow_slows_the_command_and_nothing_else() {
    let guest = Guest::boot().await;
    let mut session = guest
        .link
        .exec(&shell("yes | head -c 50000000"))
        .await
        .expect("it starts");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(guest.link.stats().await.expect("stats").agent_rss_bytes < 24 << 20);
    let mut total = 0;
    while let Some(event) = session.next().await.expect("events") {
        match event {
            ExecEvent::Stdout(data) => total += data.len(),
            ExecEvent::Stderr(_) => {}
            ExecEvent::End(end) => assert_eq!(end.exit_code, Some(0)),
        }
    }
    assert_eq!(total, 50_000_000);
}

#[tokio::test]
async fn a_detached_command_is_found_again() {
    let guest = Guest::boot().await;
    let mut start = shell("yes | head -c 3000000; echo; echo done; exit 4");
    start.detach = true;
    let session = guest.link.exec(&start).await.expect("it starts");
    let id = session.started().exec_id;
    drop(session);
    eventually("it ends", || async {
        let list = guest.link.exec_list().await.expect("a list");
        list.iter().any(|info| info.exec_id == id && info.end.is_some())
    })
    .await;
    let ended = Ended::of(guest.link.exec_attach(id).await.expect("it is there"))
        .await
        .expect("its end");
    assert_eq!(ended.end.exit_code, Some(4));
    assert!(ended.text().ends_with("done\n") && ended.stdout.len() <= 1 << 20);
    assert!(ended.end.stdout.truncated);
    assert_eq!(ended.end.stdout.total_bytes, 3_000_006);
    let again = Ended::of(guest.link.exec_attach(id).await.expect("still there"))
        .await
        .expect("its end");
    assert_eq!(again.stdout, ended.stdout);
}

#[tokio::test]
async fn a_signal_reaches_the_group_and_is_told() {
    let guest = Guest::boot().await;
    let session = guest.link.exec(&shell("sleep 60 & sleep 60")).await.expect("it starts");
    let id = session.started().exec_id;
    guest.link.exec_signal(id, 15).await.expect("a signal");
    let ended = Ended::of(session).await.expect("its end");
    assert_eq!((ended.end.exit_code, ended.end.signal), (Some(143), Some(15)));
    assert_eq!(ended.end.outcome, Outcome::Ok);
    assert!(matches!(
        guest.link.exec_signal(id, 15).await,
        Err(GuestError::Refused(_))
    ));
    assert!(matches!(
        guest.link.exec_signal(id, 65).await,
        Err(GuestError::Refused(_))
    ));
}

#[tokio::test]
async fn a_terminal_loses_nothing_at_the_end() {
    let guest = Guest::boot().await;
    let mut start = shell("stty size; test -t 0 && echo $TERM; seq 1 100000; exit 5");
    start.terminal = Some(TerminalSize { rows: 24, cols: 80 });
    let ended = guest.exec(start).await;
    let text = ended.text();
    assert!(
        text.starts_with("24 80\r\nxterm-256color\r\n1\r\n"),
        "{:?}",
        &text[..60]
    );
    assert!(text.ends_with("100000\r\n"));
    assert_eq!(text.lines().count(), 100_002);
    assert_eq!(ended.end.exit_code, Some(5));
}

#[tokio::test]
async fn keystrokes_arrive_in_order_and_control_c_interrupts() {
    let guest = Guest::boot().await;
    let mut start = shell("stty -echo -icanon; echo ready; head -c 2000 | tr -d '\\n' ; sleep 500");
    start.terminal = Some(TerminalSize { rows: 24, cols: 80 });
    let mut session = guest.link.exec(&start).await.expect("it starts");
    let id = session.started().exec_id;
    let stdin = session.take_stdin().expect("its input");
    let mut seen = Vec::new();
    let typed: Vec<u8> = (0..2000_u32).map(|n| b'a' + (n % 26) as u8).collect();
    let mut sent = 0;
    let end = loop {
        match session.next().await.expect("events").expect("an event") {
            ExecEvent::Stdout(data) => seen.extend_from_slice(&data),
            ExecEvent::Stderr(_) => {}
            ExecEvent::End(end) => break end,
        }
        if sent == 0 && seen.starts_with(b"ready\r\n") {
            for byte in &typed {
                stdin
                    .write(Bytes::copy_from_slice(&[*byte]))
                    .await
                    .expect("a keystroke");
                sent += 1;
            }
        }
        if seen.len() == 7 + typed.len() {
            guest
                .link
                .exec_resize(id, TerminalSize { rows: 50, cols: 100 })
                .await
                .expect("a resize");
            assert!(
                guest
                    .link
                    .exec_resize(id, TerminalSize { rows: 0, cols: 0 })
                    .await
                    .is_err()
            );
            stdin.write(Bytes::from_static(b"\x03")).await.expect("control-c");
        }
    };
    assert_eq!(&seen[7..7 + typed.len()], &typed[..]);
    assert_eq!(end.exit_code, Some(130));
}
