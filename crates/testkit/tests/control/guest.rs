//! Using a sandbox.

use std::time::Duration;

use atoll_control::{CellRequest, CellText, ContextRequest, ExecCollect, ExecRequest, ExecText, LogStream};
use atoll_model::{ErrorCode, ExecId, Outcome, OutputLimit};
use atoll_protocol::types::TerminalSize;
use atoll_testkit::Stack;
use bytes::Bytes;
use futures_util::{StreamExt, stream};

use crate::{code, sh, soon};

#[tokio::test]
async fn a_command_gives_its_output_and_its_code() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    let result = sh(&stack, id, "printf 'a\\0\\n\\n\\nb'; printf '\\377ok' >&2; exit 3")
        .await
        .unwrap();
    assert_eq!((result.outcome, result.exit_code), (Outcome::Ok, Some(3)));
    assert_eq!((result.stdout.text.as_str(), result.stdout.raw), ("a\0\n\n\nb", None));
    assert_eq!(result.stderr.text, "\u{fffd}ok");
    assert_eq!(result.stderr.raw.as_deref(), Some(&b"\xffok"[..]));
    assert!(
        stack
            .control
            .log_tail(&stack.admin, id, LogStream::Stdout)
            .await
            .unwrap()
            .ends_with("b")
    );
    stack.stop().await;
}

#[tokio::test]
async fn a_program_that_is_not_there_ends_as_in_a_shell() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    for (program, expected) in [("no-such-program", 127), ("/etc/passwd", 126)] {
        let run = stack
            .control
            .exec_run(&stack.admin, id, ExecRequest::argv([program]), ExecCollect::default());
        let result = soon(run).await.unwrap().into_inner();
        assert_eq!(
            (result.outcome, result.exit_code),
            (Outcome::Ok, Some(expected)),
            "{program}"
        );
        assert!(result.stderr.text.contains(program), "{}", result.stderr.text);
    }
    stack.stop().await;
}

#[tokio::test]
async fn a_deadline_is_an_outcome_with_the_output_so_far() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    let request = ExecRequest {
        timeout: Some(Duration::from_millis(500)),
        ..ExecRequest::shell("echo early; sleep 600")
    };
    let result = soon(
        stack
            .control
            .exec_run(&stack.admin, id, request, ExecCollect::default()),
    )
    .await
    .unwrap();
    assert!(
        matches!(result.outcome, Outcome::Timeout { timeout_ms: 500, .. }),
        "{:?}",
        result.outcome
    );
    assert_eq!((result.stdout.text.as_str(), result.exit_code), ("early\n", None));
    stack.stop().await;
}

#[tokio::test]
async fn standard_input_is_given_whole_and_need_not_be_read() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    let input = Bytes::from(vec![b'x'; 10 << 20]);
    for (argv, expected) in [(vec!["wc", "-c"], "10485760\n"), (vec!["head", "-c1"], "x")] {
        let collect = ExecCollect {
            stdin: Some(input.clone()),
            ..ExecCollect::default()
        };
        let run = stack
            .control
            .exec_run(&stack.admin, id, ExecRequest::argv(argv), collect);
        assert_eq!(soon(run).await.unwrap().stdout.text, expected);
    }
    let cat = stack
        .control
        .exec_run(&stack.admin, id, ExecRequest::argv(["cat"]), ExecCollect::default());
    assert_eq!(soon(cat).await.unwrap().stdout.text, "");
    stack.stop().await;
}

#[tokio::test]
async fn long_output_is_cut_with_its_head_and_tail_and_the_whole_lies_in_the_sandbox() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    let collect = ExecCollect {
        keep: OutputLimit(1000),
        ..ExecCollect::default()
    };
    let run = stack
        .control
        .exec_run(&stack.admin, id, ExecRequest::shell("seq 1 100000"), collect);
    let stdout = soon(run).await.unwrap().into_inner().stdout;
    assert!(
        stdout.summary.truncated && stdout.summary.total_bytes == 588_895,
        "{:?}",
        stdout.summary
    );
    assert!(stdout.text.starts_with("1\n2\n") && stdout.text.ends_with("\n100000\n"));
    assert!(stdout.text.len() < 1500);
    let spilled = stdout.summary.spill_path.unwrap();
    let mut whole = stack
        .control
        .file_read(&stack.admin, id, &spilled, 0, None)
        .await
        .unwrap();
    let mut bytes = 0;
    while let Some(chunk) = soon(whole.next()).await {
        bytes += chunk.unwrap().len();
    }
    assert_eq!(bytes, 588_895);
    stack.stop().await;
}

#[tokio::test]
async fn a_stream_in_text_never_cuts_a_character_and_says_its_end() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    let script = "for b in 342 202 254; do printf \"\\\\$b\"; sleep 0.05; done; exit 5";
    let start = stack
        .control
        .exec_start(&stack.admin, id, ExecRequest::shell(script), false);
    let mut session = start.await.unwrap();
    let mut all = Vec::new();
    while let Some(event) = soon(session.output.next_text()).await {
        match event {
            ExecText::Stdout(text) => all.push(text),
            ExecText::Stderr(text) => panic!("{text}"),
            ExecText::End(end) => assert_eq!(end.exit_code, Some(5)),
        }
    }
    assert_eq!(all, ["\u{20ac}"]);
    stack.stop().await;
}

#[tokio::test]
async fn a_terminal_takes_input_resizes_and_signals() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    let request = ExecRequest {
        terminal: Some(TerminalSize { rows: 24, cols: 80 }),
        ..ExecRequest::argv(["cat"])
    };
    let mut session = stack.control.exec_start(&stack.admin, id, request, true).await.unwrap();
    session.input.write(Bytes::from_static(b"hello\n")).await.unwrap();
    let mut text = String::new();
    while !text.contains("hello\r\nhello") {
        match soon(session.output.next_text()).await {
            Some(ExecText::Stdout(more)) => text.push_str(&more),
            other => panic!("{other:?} after {text:?}"),
        }
    }
    let resize = |rows| {
        stack
            .control
            .exec_resize(&stack.admin, id, session.exec_id, TerminalSize { rows, cols: 100 })
    };
    resize(40).await.unwrap();
    assert_eq!(code(resize(0).await), ErrorCode::InvalidRequest);
    stack
        .control
        .exec_signal(&stack.admin, id, session.exec_id, 9)
        .await
        .unwrap();
    let end = loop {
        if let Some(ExecText::End(end)) = soon(session.output.next_text()).await {
            break end;
        }
    };
    assert_eq!((end.signal, end.exit_code), (Some(9), Some(137)));
    assert_eq!(
        code(stack.control.exec_signal(&stack.admin, id, ExecId::random(), 9).await),
        ErrorCode::NotFound
    );
    stack.stop().await;
}

#[tokio::test]
async fn a_detached_command_goes_on_and_is_found_again() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    let request = ExecRequest {
        detach: true,
        ..ExecRequest::shell("echo first; read line; echo \"got $line\"")
    };
    let mut session = stack.control.exec_start(&stack.admin, id, request, true).await.unwrap();
    assert!(matches!(
        soon(session.output.next_text()).await,
        Some(ExecText::Stdout(_))
    ));
    let exec = session.exec_id;
    drop(session);
    let mut again = soon(stack.control.exec_attach(&stack.admin, id, exec)).await.unwrap();
    again.input.write(Bytes::from_static(b"it\n")).await.unwrap();
    let mut text = String::new();
    while let Some(event) = soon(again.output.next_text()).await {
        match event {
            ExecText::Stdout(more) => text.push_str(&more),
            ExecText::Stderr(more) => panic!("{more}"),
            ExecText::End(end) => assert_eq!(end.exit_code, Some(0)),
        }
    }
    assert_eq!(text, "first\ngot it\n");
    stack.stop().await;
}

#[tokio::test]
async fn files_go_in_and_out_as_they_are() {
    let stack = Stack::start().await;
    let id = stack.sandbox().await;
    let (control, admin) = (&stack.control, &stack.admin);
    let folder = format!("{}/in-a/deep folder/'; touch x;'", stack.folder().display());
    let path = format!("{folder}/all bytes");
    let all: Vec<u8> = (0..=255).collect();
    let chunks = stream::iter([Ok::<_, std::io::Error>(Bytes::from(all.clone()))]);
    assert_eq!(
        control
            .file_write(admin, id, &path, Some(0o640), chunks)
            .await
            .unwrap()
            .bytes,
        256
    );
    let stat = control.file_stat(admin, id, &path).await.unwrap();
    assert_eq!((stat.size, stat.mode & 0o777), (256, 0o640));
    let mut body = control.file_read(admin, id, &path, 0, None).await.unwrap();
    assert_eq!(body.length, Some(256));
    let mut read = Vec::new();
    while let Some(chunk) = soon(body.next()).await {
        read.extend_from_slice(&chunk.unwrap());
    }
    assert_eq!(read, all);

    let broken = stream::iter([Ok(Bytes::from_static(b"half")), Err(std::io::Error::other("hung up"))]);
    let refused = control
        .file_write(admin, id, &format!("{folder}/half"), None, broken)
        .await;
    assert_eq!(code(refused), ErrorCode::InvalidRequest);
    // The agent removes what a broken body left as soon as it hears of it.
    let only_the_whole_one = async {
        loop {
            let listed = control.file_list(admin, id, &folder, None, 100).await.unwrap();
            let names: Vec<&str> = listed.entries.iter().map(|entry| entry.name.as_str()).collect();
            match names[..] {
                ["all bytes"] => break,
                _ => assert!(!names.contains(&"half"), "{names:?}"),
            }
        }
    };
    soon(only_the_whole_one).await;

    control
        .file_move(admin, id, &path, &format!("{folder}/moved"))
        .await
        .unwrap();
    assert_eq!(code(control.file_stat(admin, id, &path).await), ErrorCode::NotFound);
    control.file_remove(admin, id, &folder).await.unwrap();
    assert_eq!(
        code(control.file_read(admin, id, &folder, 0, None).await),
        ErrorCode::NotFound
    );
    assert_eq!(
        code(control.file_read(admin, id, "relative", 0, None).await),
        ErrorCode::InvalidRequest
    );
    assert_eq!(
        code(control.file_read(admin, id, "/a\0b", 0, None).await),
        ErrorCode::InvalidRequest
    );
    stack.stop().await;
}

#[tokio::test]
async fn a_context_keeps_state_between_cells_and_every_end_is_typed() {
    let stack = Stack::start_with_python().await;
    let id = stack.sandbox().await;
    let (control, admin) = (&stack.control, &stack.admin);
    let request = || ContextRequest {
        language: "Python3".into(),
        ..ContextRequest::default()
    };
    let context = soon(control.context_create(admin, id, request())).await.unwrap().id;
    let cell = async |code: &str| {
        let request = CellRequest {
            code: code.to_owned(),
            timeout: Some(Duration::from_secs(2)),
            ..CellRequest::default()
        };
        soon(control.cell_run(admin, id, context, request))
            .await
            .unwrap()
            .into_inner()
    };
    assert_eq!(cell("x = 20; print('hi')").await.stdout.text, "hi\n");
    let value = cell("x + 1").await;
    assert_eq!(value.results[0].bundle["text/plain"], "21");
    assert!(value.results[0].is_last_expression);
    let raised = cell("1/0").await;
    assert_eq!((raised.outcome, raised.exit_code), (Outcome::Error, 1));
    assert_eq!(raised.error.unwrap().name, "ZeroDivisionError");
    let slow = cell("import time; time.sleep(60)").await;
    assert!(
        matches!(slow.outcome, Outcome::Timeout { timeout_ms: 2000, .. }),
        "{:?}",
        slow.outcome
    );
    assert!(matches!(
        cell("import os; os._exit(7)").await.outcome,
        Outcome::ContextDied { .. }
    ));
    assert_eq!(control.context_list(admin, id).await.unwrap().len(), 1);
    control.context_close(admin, id, context).await.unwrap();
    let gone = control.cell_run(admin, id, context, CellRequest::default()).await;
    assert_eq!(code(gone), ErrorCode::NotFound);
    let cobol = ContextRequest {
        language: "cobol".into(),
        ..request()
    };
    assert_eq!(
        code(control.context_create(admin, id, cobol).await),
        ErrorCode::InvalidRequest
    );
    stack.stop().await;
}

#[tokio::test]
async fn a_running_cell_blocks_neither_lists_nor_files_nor_a_delete() {
    let stack = Stack::start_with_python().await;
    let id = stack.sandbox().await;
    let (control, admin) = (&stack.control, &stack.admin);
    let python = ContextRequest {
        language: "python".into(),
        ..ContextRequest::default()
    };
    let context = soon(control.context_create(admin, id, python)).await.unwrap().id;
    let request = CellRequest {
        code: "print('busy', flush=True)\nwhile True: pass".into(),
        timeout: Some(Duration::from_secs(600)),
        ..CellRequest::default()
    };
    let mut cell = control.cell_start(admin, id, context, request).await.unwrap();
    assert!(matches!(soon(cell.next_text()).await, Some(CellText::Stdout(_))));
    soon(control.file_list(admin, id, "/", None, 10)).await.unwrap();
    soon(control.context_list(admin, id)).await.unwrap();
    assert_eq!(control.metrics().open_calls, 1);
    soon(control.sandbox_delete(admin, id)).await.unwrap();
    let Some(CellText::End(end)) = soon(cell.next_text()).await else {
        panic!("no end")
    };
    assert!(matches!(end.outcome, Outcome::SandboxGone { .. }));
    stack.stop().await;
}

#[tokio::test]
async fn calls_on_one_sandbox_are_bounded() {
    let stack = Stack::start_with(|config| config.max_calls_per_sandbox = 1).await;
    let id = stack.sandbox().await;
    let start = stack
        .control
        .exec_start(&stack.admin, id, ExecRequest::argv(["cat"]), true);
    let session = start.await.unwrap();
    let refusal = sh(&stack, id, "true").await.unwrap_err();
    assert_eq!((refusal.code, refusal.retry_after), (ErrorCode::TooMany, Some(1)));
    drop(session);
    sh(&stack, id, "true").await.unwrap();
    stack.stop().await;
}

#[tokio::test]
async fn two_sandboxes_and_two_contexts_never_draw_the_same_numbers() {
    let stack = Stack::start_with_python().await;
    let (control, admin) = (&stack.control, &stack.admin);
    let mut drawn = std::collections::BTreeSet::new();
    for _ in 0..2 {
        let id = stack.sandbox().await;
        for _ in 0..2 {
            let python = ContextRequest {
                language: "python".into(),
                ..ContextRequest::default()
            };
            let context = soon(control.context_create(admin, id, python)).await.unwrap().id;
            let request = CellRequest {
                code: "import random, uuid\n(random.random(), uuid.uuid4().hex)".into(),
                ..CellRequest::default()
            };
            let report = soon(control.cell_run(admin, id, context, request)).await.unwrap();
            drawn.insert(report.results[0].bundle["text/plain"].to_string());
        }
    }
    assert_eq!(drawn.len(), 4, "{drawn:?}");
    stack.stop().await;
}

#[tokio::test]
async fn all_collected_answers_together_are_bounded_until_they_are_sent() {
    let stack = Stack::start_with(|config| config.answers_bytes = 1 << 20).await;
    let id = stack.sandbox().await;
    let long = || {
        let request = ExecRequest::shell("head -c 700000 /dev/zero | tr '\\0' x");
        stack
            .control
            .exec_run(&stack.admin, id, request, ExecCollect::default())
    };
    let first = soon(long()).await.unwrap();
    assert_eq!(first.stdout.text.len(), 700_000);
    let refusal = soon(long()).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::NoCapacity);
    assert!(refusal.retry_after.is_some());
    drop(first);
    assert_eq!(soon(long()).await.unwrap().stdout.text.len(), 700_000);
    stack.stop().await;
}
