//! A real template on a real engine: built from the machine's mirror, baked, restored, used.
//!
//! Needs root, mmdebstrap, runsc and a Debian mirror, as a server does. Both tests share one state folder below the build's own
//! target folder, so that a second run finds the rootfs of the first; a change of the recipe builds it anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use atoll_engine::{Engine, MachinePlan};
use atoll_engine_gvisor::{Gvisor, GvisorConfig};
use atoll_guest_link::{ExecEvent, GuestLink};
use atoll_model::{MachineId, SandboxId};
use atoll_protocol::types::{ExecStart, Program, ThawRequest};
use atoll_template::{BakedTemplate, BuildEvent, Phase, Progress, TemplateError, Templates, TemplatesConfig};
use tokio_util::sync::CancellationToken;

/// Machines want a short path; rootfs stay for the next run.
struct Lab {
    machines: tempfile::TempDir,
    state: PathBuf,
}

impl Lab {
    fn new(name: &str) -> Self {
        let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&state).unwrap();
        Self {
            machines: tempfile::tempdir().unwrap(),
            state,
        }
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        let config = GvisorConfig {
            state_dir: self.machines.path().to_owned(),
            runsc: None,
        };
        Arc::new(Gvisor::new(config).await.unwrap())
    }

    fn templates(&self) -> Templates {
        Templates::open(TemplatesConfig {
            state_dir: self.state.clone(),
            built_in: atoll_guest_image::recipes(),
            recipes_dir: None,
            guest: atoll_guest_image::guest(),
        })
        .unwrap()
    }
}

fn recorder() -> (Progress, Arc<Mutex<Vec<BuildEvent>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let copy = Arc::clone(&seen);
    let progress = Progress::new(
        move |event| copy.lock().unwrap().push(event.clone()),
        CancellationToken::new(),
    );
    (progress, seen)
}

/// Restores a sandbox and gives what a command prints in it.
async fn shell_in_restored(engine: &Arc<dyn Engine>, baked: &BakedTemplate, command: &str) -> String {
    let id = MachineId::from(SandboxId::random());
    let plan = MachinePlan {
        id: id.clone(),
        rootfs: baked.rootfs.clone(),
        guest_dir: baked.guest_dir.clone(),
        limits: baked.limits,
        hostname: "sandbox".to_owned(),
    };
    let machine = engine.restore(plan, baked.snapshot.clone()).await.unwrap();
    let link = GuestLink::attach(machine.port).await.unwrap();
    let mut entropy = [0_u8; 32];
    getrandom::fill(&mut entropy).unwrap();
    let thaw = ThawRequest {
        unix_nanos: 1_700_000_000_000_000_000,
        entropy: hex::encode(entropy),
        hostname: "sandbox".to_owned(),
        env: baked.env.clone(),
        cpu: baked.limits.cpu,
        memory_mb: baked.limits.memory_mb,
        pids: baked.limits.pids,
    };
    link.thaw(&thaw).await.unwrap();
    let start = ExecStart {
        program: Program::Shell(command.to_owned()),
        cwd: None,
        user: None,
        env: BTreeMap::new(),
        stdin: false,
        terminal: None,
        timeout_ms: Some(10_000),
        keep: None,
        detach: false,
    };
    let mut session = link.exec(&start).await.unwrap();
    let mut printed = Vec::new();
    while let Some(event) = session.next().await.unwrap() {
        if let ExecEvent::Stdout(bytes) = event {
            printed.extend_from_slice(&bytes);
        }
    }
    drop((session, link));
    engine.stop(&id).await.unwrap();
    String::from_utf8(printed).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn base_is_built_baked_tested_and_restored() {
    let lab = Lab::new("templates");
    let engine = lab.engine().await;
    let templates = lab.templates();
    let baked = templates
        .ensure("ubuntu-24.04", &engine, &Progress::silent())
        .await
        .unwrap();
    assert_eq!(baked.name.as_str(), "base");
    assert_eq!(
        shell_in_restored(&engine, &baked, "echo $LANG; cat /etc/hostname").await,
        "C.UTF-8\nsandbox\n"
    );
    // Nothing of the machine that built it is inside.
    let inside = |path: &str| std::fs::read_to_string(baked.rootfs.join(path)).unwrap();
    assert_eq!(inside("etc/resolv.conf"), "");
    assert!(!baked.rootfs.join("run/atoll-build").exists());
    assert!(!baked.rootfs.join("etc/apt/apt.conf.d/99mmdebstrap").exists());

    // A second server finds what the first one made, and does nothing.
    let (progress, seen) = recorder();
    let again = lab.templates().ensure("base", &engine, &progress).await.unwrap();
    assert_eq!(again, baked);
    assert!(seen.lock().unwrap().is_empty());

    // What nobody needs any more goes, what is pinned stays.
    templates
        .collect(&BTreeSet::from([baked.digest.clone()]))
        .await
        .unwrap();
    assert_eq!(
        templates.baked(&baked.name, &baked.digest).unwrap().as_ref(),
        Some(&*baked)
    );
    assert!(engine.inventory().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_build_leaves_nothing() {
    let lab = Lab::new("cancelled");
    let engine = lab.engine().await;
    let cancel = CancellationToken::new();
    let copy = cancel.clone();
    let progress = Progress::new(
        move |event| {
            if matches!(
                event,
                BuildEvent::Line {
                    phase: Phase::Packages,
                    number: 20,
                    ..
                }
            ) {
                copy.cancel();
            }
        },
        cancel,
    );
    let error = lab.templates().ensure("base", &engine, &progress).await.unwrap_err();
    assert!(matches!(error, TemplateError::Cancelled), "{error}");
    let left: Vec<_> = std::fs::read_dir(lab.state.join("templates/base"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["build.log"]);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(lab.state.to_str().unwrap()));
}
