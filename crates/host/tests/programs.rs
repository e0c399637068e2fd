//! Programs, groups and enclosures on this host. Needs root, as the product does.

use std::{path::Path, time::Duration};

use atoll_host::{
    Cgroup, CgroupLimits, Cgroups, Enclosure, Line, LineSource, MountAction, ProcessId, Program, ProgramError, image,
    mounts,
};

const LONG: Duration = Duration::from_secs(60);

fn shell(script: &str) -> Program {
    let mut program = Program::new("/bin/sh").unwrap();
    program.args(["-c", script]);
    program
}

/// A group of this test alone.
fn group(name: &str) -> Cgroup {
    Cgroups::open("atoll-host-tests", Path::new("/"))
        .unwrap()
        .group(&format!("{name}-{}", std::process::id()))
}

#[tokio::test]
async fn lines_arrive_in_order_and_nothing_is_inherited() {
    // The test harness leaves descriptors open and has an environment; the program sees neither.
    let open = std::fs::File::open("/etc/passwd").unwrap();
    nix::fcntl::fcntl(&open, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    let mut lines: Vec<Line> = Vec::new();
    // No pipeline around `ls`: the shell itself would hold its pipe for a moment.
    let program = shell("echo one; env | grep -v -e ^PWD= -e ^SHLVL= -e ^_= ; ls /proc/$$/fd; echo last >&2; exit 3");
    let finished = program.run(LONG, |line| lines.push(line.clone())).await.unwrap();
    assert_eq!(finished.status.code(), Some(3));
    let of = |source| -> Vec<&str> {
        lines
            .iter()
            .filter(|line| line.source == source)
            .map(|line| line.text.as_str())
            .collect()
    };
    assert_eq!(of(LineSource::Stdout), ["one", "0", "1", "2"]);
    assert_eq!(of(LineSource::Stderr), ["last"]);
    match finished.success() {
        Err(ProgramError::Failed { tail, .. }) => assert!(tail.contains("last")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_line_without_end_comes_in_pieces() {
    let mut lengths = Vec::new();
    let finished = shell("head -c 20000 /dev/zero | tr '\\0' a")
        .run(LONG, |line| lengths.push(line.text.len()))
        .await;
    assert!(finished.unwrap().status.success());
    assert_eq!(
        (lengths.iter().sum::<usize>(), lengths.iter().max()),
        (20_000, Some(&8192))
    );
}

#[tokio::test]
async fn what_a_program_leaves_running_does_not_keep_us_waiting() {
    let finished = shell("sleep 1000 & echo $!").run(LONG, |_| {}).await.unwrap();
    let left: i32 = finished.tail.parse().unwrap();
    // Its streams close a moment before it has ended.
    if let Some(left) = ProcessId::of(left).unwrap().and_then(|id| id.watch().unwrap()) {
        tokio::time::timeout(LONG, left.ended())
            .await
            .expect("it was killed")
            .unwrap();
    }
}

#[tokio::test]
async fn a_deadline_kills_and_is_told() {
    let error = shell("echo busy; sleep 1000")
        .run(Duration::from_millis(300), |_| {})
        .await
        .unwrap_err();
    assert!(
        matches!(&error, ProgramError::TooSlow { tail, .. } if tail == "busy"),
        "{error}"
    );
}

#[tokio::test]
async fn a_relative_path_is_no_program() {
    assert!(matches!(Program::new("sh"), Err(ProgramError::Start { .. })));
}

#[tokio::test]
async fn a_group_holds_counts_and_kills_all_that_was_started_in_it() {
    let group = group("kill");
    group.create(&CgroupLimits::default()).unwrap();
    let mut program = shell(
        "setsid sleep 1000 & (setsid sleep 1000 &) ; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 1000",
    );
    program.cgroup(&group).unwrap();
    let mut child = program.spawn().unwrap();
    while group.usage().unwrap().cpu_micros < 10_000 || group.processes().unwrap().len() < 3 {
        tokio::task::yield_now().await;
    }
    let members = group.processes().unwrap();
    assert!(members.contains(&child.pid()));
    group.destroy().await.unwrap();
    child.wait().await.unwrap();
    for pid in members {
        assert_eq!(ProcessId::of(pid).unwrap(), None);
    }
    assert!(group.usage().is_err());
    group.destroy().await.unwrap();
}

#[tokio::test]
async fn the_memory_limit_kills_and_is_counted() {
    let group = group("oom");
    let limits = CgroupLimits {
        memory_bytes: Some(32 << 20),
        ..CgroupLimits::default()
    };
    group.create(&limits).unwrap();
    let mut program = shell("x=$(head -c 200000000 /dev/zero | tr '\\0' a); echo ${#x}");
    program.cgroup(&group).unwrap();
    let finished = program.run(LONG, |_| {}).await.unwrap();
    assert!(group.oom_kills().unwrap() > 0, "{finished:?}");
    assert!(group.usage().unwrap().memory_peak_bytes > 16 << 20);
    group.destroy().await.unwrap();
}

#[tokio::test]
async fn an_enclosure_has_its_own_root_pids_and_mounts() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().join("top");
    let root = top.join("root");
    std::fs::create_dir(&top).unwrap();
    let mut enclosure = Enclosure::new();
    enclosure
        .mount(MountAction::New {
            kind: "tmpfs",
            at: &top,
            options: "size=16m",
        })
        .unwrap();
    for part in ["upper", "work", "root"] {
        enclosure.mount(MountAction::Folder(&top.join(part))).unwrap();
    }
    let (upper, work) = (top.join("upper"), top.join("work"));
    let options = format!("lowerdir=/,upperdir={},workdir={}", upper.display(), work.display());
    enclosure
        .mount(MountAction::New {
            kind: "overlay",
            at: &root,
            options: &options,
        })
        .unwrap();
    enclosure
        .mount(MountAction::New {
            kind: "proc",
            at: &root.join("proc"),
            options: "",
        })
        .unwrap();
    enclosure.root(&root).unwrap();
    enclosure.own_pids();
    let mut program = shell(
        "echo $$; cd /; pwd; echo changed > /atoll-enclosure-test; cat /atoll-enclosure-test; ls /proc | grep -c '^[0-9]'; exit 9",
    );
    program.enclosure(enclosure);
    let finished = program.run(LONG, |_| {}).await.unwrap();
    assert_eq!(finished.status.code(), Some(9), "{}", finished.tail);
    let lines: Vec<&str> = finished.tail.lines().collect();
    assert_eq!(&lines[..3], ["1", "/", "changed"]);
    assert!(lines[3].parse::<u32>().unwrap() < 5);
    assert!(!Path::new("/atoll-enclosure-test").exists());
    assert!(mounts::below(folder.path()).unwrap().is_empty());
}

#[tokio::test]
async fn an_image_bounds_what_is_written_and_gives_back_what_is_deleted() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let (blank, copy, at) = (
        folder.path().join("blank"),
        folder.path().join("copy"),
        folder.path().join("at"),
    );
    image::format(&blank, 64).await.unwrap();
    image::copy(&blank, &copy).unwrap();
    std::fs::create_dir(&at).unwrap();
    image::mount_image(&copy, &at).unwrap();
    assert_eq!(mounts::below(folder.path()).unwrap(), std::slice::from_ref(&at));
    let error = std::fs::write(at.join("big"), vec![1; 80 << 20]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert!(std::fs::metadata(at.join("big")).unwrap().len() > 60 << 20);
    mounts::unmount(&at).unwrap();
    mounts::unmount(&at).unwrap();
    assert!(mounts::below(folder.path()).unwrap().is_empty());
    assert!(std::fs::metadata(&blank).unwrap().blocks() * 512 < 1 << 20);
}
