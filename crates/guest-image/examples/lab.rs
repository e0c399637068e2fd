//! lab
use std::{sync::Arc, time::Instant};
use atoll_engine::{Engine, MachinePlan};
use atoll_engine_gvisor::{Gvisor, GvisorConfig};
use atoll_guest_link::{CellOutput, GuestLink};
use atoll_model::{MachineId, SandboxId, OutputLimit};
use atoll_protocol::types::*;
use atoll_template::{BuildEvent, Progress, Templates, TemplatesConfig};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let state = std::path::PathBuf::from("/tmp/template-lab");
    std::fs::create_dir_all(&state).unwrap();
    let engine: Arc<dyn Engine> = Arc::new(Gvisor::new(GvisorConfig { state_dir: state.clone(), runsc: None }).await.unwrap());
    for id in engine.inventory().await.unwrap() { engine.stop(&id).await.unwrap(); }
    let templates = Templates::open(TemplatesConfig { state_dir: state, built_in: atoll_guest_image::recipes(), recipes_dir: None, guest: atoll_guest_image::guest() }).unwrap();
    let t0 = Instant::now();
    let progress = Progress::new(move |event| match event { BuildEvent::Phase { phase } => println!("{:7.2}s {phase:?}", t0.elapsed().as_secs_f64()), BuildEvent::Line { phase, text, .. } => if std::env::var_os("V").is_some() || *phase >= atoll_template::Phase::Setup { println!("    {text}") } }, CancellationToken::new());
    let baked = match templates.ensure(&args[1], &engine, &progress).await { Ok(b) => b, Err(e) => { let mut s: Option<&dyn std::error::Error> = Some(&e); while let Some(e) = s { println!("ERR {e}"); s = e.source(); } return; } };
    println!("{:7.2}s ready; {} MB; {baked:?}", t0.elapsed().as_secs_f64(), baked.bytes >> 20);
    if args.len() < 3 { return; }
    let n: usize = args[2].parse().unwrap();
    let mut restores = vec![]; let mut thaws = vec![]; let mut ctx1 = vec![]; let mut ctx2 = vec![]; let mut first = vec![]; let mut warm = vec![]; let mut pandas = vec![]; let mut plot = vec![];
    for _ in 0..n {
        let id = MachineId::from(SandboxId::random());
        let plan = MachinePlan { id: id.clone(), rootfs: baked.rootfs.clone(), guest_dir: baked.guest_dir.clone(), limits: baked.limits, hostname: "s".into() };
        let t = Instant::now();
        let machine = engine.restore(plan, baked.snapshot.clone()).await.unwrap();
        restores.push(t.elapsed()); let t = Instant::now();
        let link = GuestLink::attach(machine.port).await.unwrap();
        link.thaw(&ThawRequest { unix_nanos: 1_800_000_000_000_000_000, entropy: "ab".repeat(32), hostname: "s".into(), env: baked.env.clone(), memory_mb: baked.limits.memory_mb, pids: 1024 }).await.unwrap();
        thaws.push(t.elapsed());
        let t = Instant::now();
        let create = ContextCreate { language: "python".into(), cwd: None, env: Default::default() };
        let c = link.context_create(&create).await.unwrap(); ctx1.push(t.elapsed());
        let cell = async |code: &str| { let t = Instant::now(); let mut s = link.context_run(c.id, &CellRun { code: code.into(), timeout_ms: 60000, env: Default::default(), keep: OutputLimit(1 << 20) }).await.unwrap();
            while let Some(o) = s.next().await.unwrap() { if std::env::var_os("SHOW").is_some() { println!("{:?}", o); } if let CellOutput::Event(CellEvent::Done(e)) = &o { if e.exit_code != 0 { println!("{e:?}"); } } } t.elapsed() };
        first.push(cell("1+1").await);
        for _ in 0..50 { warm.push(cell("1+1").await); }
        pandas.push(cell("import pandas as pd; pd.DataFrame({'a':[1,2]})").await);
        plot.push(cell("import matplotlib.pyplot as plt; plt.plot([1,2]); plt.show()").await);
        for _ in 0..5 { let t = Instant::now(); let c = link.context_create(&create).await.unwrap(); ctx2.push(t.elapsed()); if std::env::var_os("CLOSE").is_some() { link.context_close(c.id).await.unwrap(); } }
        println!("{:?} usage {:?}", link.stats().await.unwrap(), engine.usage(&id).await.unwrap());
        if let Some(code) = args.get(3) { cell(code).await; }
        drop(link); engine.stop(&id).await.unwrap();
    }
    for (name, v) in [("restore", &mut restores), ("thaw", &mut thaws), ("ctx first", &mut ctx1), ("cell first", &mut first), ("cell warm", &mut warm), ("pandas", &mut pandas), ("plot", &mut plot), ("ctx more", &mut ctx2)] {
        v.sort(); println!("{name:12} p50 {:8.2} ms  min {:8.2} max {:8.2}", v[v.len()/2].as_secs_f64()*1e3, v[0].as_secs_f64()*1e3, v[v.len()-1].as_secs_f64()*1e3);
    }
}
