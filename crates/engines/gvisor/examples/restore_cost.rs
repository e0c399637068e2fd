//! What `Engine::restore` costs beside the plain `runsc restore` of the same snapshot, in turns in one run.
//!
//! `cargo run --release -p atoll-engine-gvisor --example restore_cost -- ROOTFS GUEST_DIR [ROUNDS]`, as root.
//! GUEST_DIR holds `agent`, the process 1 that is measured; it gets three seconds to warm up.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use atoll_engine::{Engine, MachinePlan};
use atoll_engine_gvisor::{Gvisor, GvisorConfig};
use atoll_host::{FifoPort, ProcessId, Program, find_program, make_fifos};
use atoll_model::{Limits, MachineId, SandboxId};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(rootfs), Some(guest_dir)) = (arguments.next(), arguments.next()) else {
        return Err("usage: restore_cost ROOTFS GUEST_DIR [ROUNDS]".into());
    };
    let rounds: usize = arguments
        .next()
        .and_then(|text| text.to_str()?.parse().ok())
        .unwrap_or(20);
    let state = PathBuf::from(format!("/tmp/restore-cost-{}", std::process::id()));
    let config = GvisorConfig {
        state_dir: state.clone(),
        runsc: None,
    };
    let plan = |rootfs: &Path, guest_dir: &Path| MachinePlan {
        id: MachineId::from(SandboxId::random()),
        rootfs: rootfs.to_owned(),
        guest_dir: guest_dir.to_owned(),
        limits: Limits::default(),
        hostname: "measure".to_owned(),
    };
    let plan = || plan(Path::new(&rootfs), Path::new(&guest_dir));
    let engine = Gvisor::new(config).await?;
    let parent = engine.boot(plan()).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let snapshot = state.join("snapshot");
    fs::create_dir(&snapshot)?;
    let (taken, ()) = timed(engine.snapshot(&parent.id, snapshot.clone())).await?;
    println!("snapshot {taken:.0} ms");
    let bundle = fs::read(state.join("machines").join(parent.id.as_str()).join("config.json"))?;
    engine.stop(&parent.id).await?;
    drop(parent);

    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..rounds {
        times[0].push(raw_restore(&state.join(format!("raw{round}")), &bundle, &snapshot).await?);
        let (restore, machine) = timed(engine.restore(plan(), snapshot.clone())).await?;
        times[1].push(restore);
        if round == 0 {
            let usage = engine.usage(&machine.id).await?;
            println!("fresh machine: {usage:?}");
        }
        times[2].push(timed(engine.stop(&machine.id)).await?.0);
    }
    for (name, times) in ["runsc restore", "Engine::restore", "Engine::stop"]
        .iter()
        .zip(&mut times)
    {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!(
            "{name:16} n={} min {:.1}  p50 {:.1}  p90 {:.1} ms",
            times.len(),
            at(0.0),
            at(0.5),
            at(0.9)
        );
    }
    fs::remove_dir_all(&state)?;
    Ok(())
}

async fn timed<T, E: Error + 'static>(work: impl Future<Output = std::result::Result<T, E>>) -> Result<(f64, T)> {
    let start = Instant::now();
    let value = work.await?;
    Ok((start.elapsed().as_secs_f64() * 1e3, value))
}

/// The shortest way: no control group, no bounded disk, no view of memory. Returns milliseconds.
async fn raw_restore(folder: &Path, bundle: &[u8], snapshot: &Path) -> Result<f64> {
    fs::create_dir(folder)?;
    fs::write(folder.join("config.json"), bundle)?;
    make_fifos(folder)?;
    fs::create_dir(folder.join("disk"))?;
    let _port = FifoPort::open(folder)?;
    let path = find_program("runsc", &std::env::var_os("PATH").unwrap_or_default()).ok_or("no runsc")?;
    let mut runsc = Program::new(path)?;
    let (input, output) = FifoPort::guest_end(folder)?;
    runsc
        .stdin(input)
        .stdout(output)
        .arg("-root")
        .arg(folder.join("r"))
        .args(["-network", "none", "-ignore-cgroups"]);
    runsc
        .arg("-overlay2")
        .arg(format!("root:dir={}", folder.join("disk").display()));
    runsc
        .args(["restore", "-detach", "-pid-file"])
        .arg(folder.join("pid"))
        .arg("-bundle")
        .arg(folder);
    runsc.arg("-image-path").arg(snapshot).arg("m");
    let start = Instant::now();
    let mut child = runsc.spawn()?;
    let finished = child.finish().await?.success();
    let took = start.elapsed().as_secs_f64() * 1e3;
    finished?;
    let pid = fs::read_to_string(folder.join("pid"))?.trim().parse()?;
    if let Some(watch) = ProcessId::of(pid)?.and_then(|id| id.watch().transpose()).transpose()? {
        watch.kill()?;
        watch.ended().await?;
    }
    fs::remove_dir_all(folder)?;
    Ok(took)
}
