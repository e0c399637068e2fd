//! Contexts, on the smallest possible driver.

use std::{collections::BTreeMap, time::Instant};

use atoll_guest_link::GuestError;
use atoll_model::{Outcome, OutputLimit};
use atoll_protocol::types::{CellRun, ContextCreate, GuestCode};

use crate::guest::{Cell, Guest, eventually};

async fn warm_guest() -> Guest {
    let guest = Guest::boot().await;
    guest.warm().await;
    guest
}

#[tokio::test]
async fn state_stays_in_its_context_and_cells_run_in_order() {
    let guest = warm_guest().await;
    let (one, two) = (guest.context().await, guest.context().await);
    assert_eq!(guest.cell(one, "secret = 1; print(6 * 7)").await.stdout, "42\n");
    let foreign = guest.cell(two, "secret").await;
    assert_eq!(foreign.end.outcome, Outcome::Error);
    assert_eq!(foreign.end.error.expect("an error").name, "NameError");
    let cells = (0..20).map(|_| {
        guest.cell(
            one,
            "import time; time.sleep(.02); n = globals().get('n', 0) + 1; print(n)",
        )
    });
    let counted: Vec<String> = futures_util::future::join_all(cells)
        .await
        .into_iter()
        .map(|cell| cell.stdout)
        .collect();
    assert_eq!(counted, (1..=20).map(|n| format!("{n}\n")).collect::<Vec<_>>());
    let list = guest.link.context_list().await.expect("a list");
    assert_eq!(
        list.iter()
            .map(|info| (info.id, info.cells, info.restarts))
            .collect::<Vec<_>>(),
        [(one, 21, 0), (two, 1, 0)]
    );
}

#[tokio::test]
async fn output_of_everything_is_heard_in_order_before_the_end() {
    let guest = warm_guest().await;
    let context = guest.context().await;
    let cell = guest.cell(context, "import os, subprocess, sys\nos.system('echo hi')\nsubprocess.run(['echo', 'yo'])\nprint('err', file=sys.stderr)\nresult({'text/plain': 'r'})\nsys.exit(3)").await;
    assert_eq!((cell.stdout.as_str(), cell.stderr.as_str()), ("hi\nyo\n", "err\n"));
    assert_eq!(cell.results.len(), 1);
    assert_eq!((cell.end.outcome, cell.end.exit_code), (Outcome::Error, 3));
    for code in ["2**70", "-1", "256"] {
        let cell = guest.cell(context, &format!("sys.exit({code})")).await;
        assert_eq!((cell.end.outcome, cell.end.exit_code), (Outcome::Error, 255), "{code}");
    }
    let chatty = guest
        .cell(context, "subprocess.run('head -c 20M /dev/zero | base64', shell=True)")
        .await;
    assert_eq!(chatty.end.outcome, Outcome::Ok);
    assert!(chatty.end.stdout.truncated && chatty.stdout.len() < (1 << 20) + 300);
}

#[tokio::test]
async fn a_deadline_interrupts_and_keeps_the_state() {
    let guest = warm_guest().await;
    let context = guest.context().await;
    guest.cell(context, "x = 5").await;
    let late = guest
        .cell_within(
            context,
            "import time\nprint('begun')\ntime.sleep(60)\nprint('OLD')",
            300,
        )
        .await;
    assert_eq!(
        late.end.outcome,
        Outcome::Timeout {
            timeout_ms: 300,
            context_restarted: false
        }
    );
    assert_eq!(late.stdout, "begun\n");
    assert_eq!(guest.cell(context, "print('NEW', x)").await.stdout, "NEW 5\n");
}

#[tokio::test]
async fn code_that_will_not_stop_is_killed_with_all_it_started() {
    let guest = warm_guest().await;
    let context = guest.context().await;
    let code = "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '4322'])\nprint('begun')\nwhile True:\n  try: time.sleep(60)\n  except BaseException: pass";
    let begun = Instant::now();
    let stubborn = guest.cell_within(context, code, 3000).await;
    assert_eq!(
        stubborn.end.outcome,
        Outcome::Timeout {
            timeout_ms: 3000,
            context_restarted: true
        }
    );
    assert_eq!(stubborn.stdout, "begun\n");
    assert!(begun.elapsed().as_secs() < 10);
    let next = guest.cell(context, "print('x' in globals())").await;
    assert_eq!((next.end.outcome, next.stdout.as_str()), (Outcome::Ok, "False\n"));
    let left = guest
        .sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 4322'")
        .await;
    assert_eq!(left.text().trim(), "0");
}

#[tokio::test]
async fn a_dead_interpreter_is_told_at_once_and_replaced() {
    let guest = warm_guest().await;
    let context = guest.context().await;
    for (code, signal, exit_code) in [
        ("print('before', flush=True); import os; os._exit(7)", None, Some(7)),
        ("print('before'); import os; os.kill(os.getpid(), 9)", Some(9), None),
        (
            "print('before'); import ctypes; ctypes.memmove(0, 0, 1)",
            Some(11),
            None,
        ),
    ] {
        let cell = guest.cell(context, code).await;
        assert_eq!(cell.end.outcome, Outcome::ContextDied { signal, exit_code });
        assert_eq!(cell.stdout, "before\n");
        assert_eq!(guest.cell(context, "print('alive')").await.stdout, "alive\n");
    }
    assert_eq!(guest.link.context_list().await.expect("a list")[0].restarts, 3);
}

#[tokio::test]
async fn one_that_dies_between_cells_is_told_to_the_next() {
    let guest = warm_guest().await;
    let context = guest.context().await;
    guest
        .cell(
            context,
            "import os, threading; threading.Timer(0.2, os._exit, [9]).start()",
        )
        .await;
    eventually("it is gone", || async {
        guest.link.stats().await.expect("stats").processes <= 2
    })
    .await;
    let next = guest.cell(context, "print('not run')").await;
    assert_eq!(
        next.end.outcome,
        Outcome::ContextDied {
            signal: None,
            exit_code: Some(9)
        }
    );
    assert_eq!(next.stdout, "");
    assert_eq!(guest.cell(context, "print('run')").await.stdout, "run\n");
}

#[tokio::test]
async fn a_caller_who_leaves_interrupts_its_cell_and_takes_it_from_the_queue() {
    let guest = warm_guest().await;
    let context = guest.context().await;
    let long = guest
        .start_cell(context, "import time; time.sleep(3600)", 86_400_000)
        .await;
    let waiting = guest.start_cell(context, "ran = True", 1000).await;
    eventually("it runs", || async {
        guest.link.context_list().await.expect("a list")[0].busy
    })
    .await;
    drop((long, waiting));
    let next = guest.cell(context, "print('ran' in globals())").await;
    assert_eq!(next.stdout, "False\n");
}

#[tokio::test]
async fn interrupt_restart_and_close_are_told_to_the_cell() {
    let guest = warm_guest().await;
    let context = guest.context().await;
    let sleeping = "import time; time.sleep(60)";
    let busy = || async { guest.link.context_list().await.expect("a list")[0].busy };
    let cell = guest.start_cell(context, sleeping, 60_000).await;
    eventually("it runs", busy).await;
    guest.link.context_interrupt(context).await.expect("an interrupt");
    let cell = Cell::of(cell).await.expect("its end");
    assert_eq!(
        cell.end.outcome,
        Outcome::Interrupted {
            context_restarted: false
        }
    );
    let cell = guest.start_cell(context, sleeping, 60_000).await;
    eventually("it runs", busy).await;
    assert_eq!(
        guest.link.context_restart(context).await.expect("a restart").restarts,
        1
    );
    let cell = Cell::of(cell).await.expect("its end");
    assert_eq!(
        cell.end.outcome,
        Outcome::Interrupted {
            context_restarted: true
        }
    );
    let cell = guest.start_cell(context, sleeping, 60_000).await;
    let queued = guest.start_cell(context, sleeping, 60_000).await;
    eventually("it runs", busy).await;
    guest.link.context_close(context).await.expect("closed");
    assert_eq!(Cell::of(cell).await.expect("its end").end.outcome, Outcome::Cancelled);
    assert_eq!(Cell::of(queued).await.expect("its end").end.outcome, Outcome::Cancelled);
    assert!(
        matches!(guest.link.context_close(context).await, Err(GuestError::Refused(refusal)) if refusal.code == GuestCode::NotFound)
    );
    eventually("agent and interpreter are left", || async {
        guest.link.stats().await.expect("stats").processes == 2
    })
    .await;
}

#[tokio::test]
async fn results_are_bounded_and_updates_become_one() {
    let guest = warm_guest().await;
    let context = guest.context().await;
    let cell = guest.cell(context, "result({'text/plain': 'a'}, 'd')\nfor i in range(1000): result({'text/plain': str(i)}, 'd', True)\nresult({'text/plain': 'last'})").await;
    let texts: Vec<&str> = cell
        .results
        .iter()
        .filter_map(|bundle| bundle["text/plain"].as_str())
        .collect();
    assert_eq!(texts, ["999", "last"]);
    let cell = guest.cell(context, "result({'text/html': 'x' * 20_000_000})").await;
    assert_eq!(cell.end.outcome, Outcome::Ok);
    let text = cell.results[0]["text/plain"].as_str().expect("a note");
    assert!(
        text.contains("too long") && text.contains("/tmp/.atoll/spill/"),
        "{text}"
    );
    let cell = guest
        .cell(context, "for i in range(3000): result({'text/plain': str(i)})")
        .await;
    assert_eq!(cell.results.len(), 1001);
    assert!(guest.link.stats().await.expect("stats").agent_rss_bytes < 32 << 20);
}

#[tokio::test]
async fn surroundings_of_a_context_and_of_one_run() {
    let guest = warm_guest().await;
    let folder = guest.path("a b");
    guest.link.file_mkdir(&folder).await.expect("a folder");
    let create = ContextCreate {
        language: "python".to_owned(),
        cwd: Some(folder.clone()),
        env: BTreeMap::from([("OWN".to_owned(), "o".to_owned())]),
    };
    let context = guest.link.context_create(&create).await.expect("a context").id;
    let run = CellRun {
        code: "import os; print(os.getcwd(), os.environ['OWN'], os.environ['MACHINE'], os.environ['K'])".to_owned(),
        timeout_ms: 10_000,
        env: BTreeMap::from([("K".to_owned(), "1".to_owned())]),
        keep: OutputLimit::default(),
    };
    let cell = Cell::of(guest.link.context_run(context, &run).await.expect("queued"))
        .await
        .expect("its end");
    assert_eq!(cell.stdout, format!("{folder} o yes 1\n"));
    assert_eq!(guest.cell(context, "print(os.environ.get('K'))").await.stdout, "None\n");
    let mut bad = create.clone();
    bad.cwd = Some("/nowhere".to_owned());
    assert!(
        matches!(guest.link.context_create(&bad).await, Err(GuestError::Refused(refusal)) if refusal.code == GuestCode::Invalid && refusal.message.starts_with("cwd: "))
    );
    bad.language = "cobol".to_owned();
    assert!(
        matches!(guest.link.context_create(&bad).await, Err(GuestError::Refused(refusal)) if refusal.code == GuestCode::Invalid)
    );
}

#[tokio::test]
async fn without_a_warm_interpreter_there_are_no_contexts_and_a_dead_one_is_started_anew() {
    let guest = Guest::boot().await;
    let create = ContextCreate {
        language: "python".to_owned(),
        cwd: None,
        env: BTreeMap::new(),
    };
    let refused = guest.link.context_create(&create).await;
    assert!(matches!(refused, Err(GuestError::Refused(refusal)) if refusal.code == GuestCode::NotFound));
    guest.warm().await;
    let old = guest.context().await;
    guest.cell(old, "x = 1").await;
    guest.sh("for p in /proc/[0-9]*; do if grep -q '^PPid:.1$' $p/status && grep -q driver.py $p/cmdline; then kill -9 ${p#/proc/}; break; fi; done").await;
    eventually("the zygote is gone", || async {
        guest.link.stats().await.expect("stats").processes == 2
    })
    .await;
    assert_eq!(guest.cell(old, "print(x)").await.stdout, "1\n");
    let new = guest.context().await;
    assert_eq!(guest.cell(new, "print('new')").await.stdout, "new\n");
    let died = guest.cell(old, "import os; os._exit(3)").await;
    assert_eq!(
        died.end.outcome,
        Outcome::ContextDied {
            signal: None,
            exit_code: Some(3)
        }
    );
}

#[tokio::test]
async fn two_thaws_never_draw_the_same() {
    let guest = warm_guest().await;
    let draw = "import random; print(random.random())";
    let mut drawn = Vec::new();
    for _ in 0..2 {
        guest.thaw(1024, 1024).await;
        let context = guest.context().await;
        drawn.push(guest.cell(context, draw).await.stdout);
    }
    assert_ne!(drawn[0], drawn[1]);
}
