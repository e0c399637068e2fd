//! The cases. Each is a promise of [`Engine`](crate::Engine) or [`Capabilities`](crate::Capabilities).

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use atoll_model::{Limits, MachineId, SandboxId};
use futures_util::future::join_all;

use super::{Bench, LIMITS, Lab, Talk, traces::kill_all, victim};
use crate::{AGENT_PATH, Engine, EngineError, GUEST_DIR};

/// For what must come soon; far more than a slow machine needs.
const SOON: Duration = Duration::from_secs(60);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future)
        .await
        .unwrap_or_else(|_| panic!("{what} did not come"))
}

/// [`Engine::probe`] tries for real, says what the engine can do, and cleans up.
pub async fn a_probe_succeeds_and_leaves_nothing<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let found = bench.engine.probe().await.expect("the engine works here");
    assert_eq!(&found, bench.engine.capabilities());
    assert_eq!(bench.engine.inventory().await.unwrap(), []);
    bench.finish().await;
}

/// [`Engine::boot`] gives a machine whose process 1 is at the other end of the port.
pub async fn a_booted_machine_answers_and_has_no_network<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let mut machine = bench.boot().await;
    assert_eq!(machine.ask("get word").await, "nothing");
    assert_eq!(machine.ask("set word one").await, "ok");
    assert_eq!(machine.ask("get word").await, "one");
    if bench.engine.capabilities().isolation > atoll_model::Isolation::None {
        let interfaces = machine.ask("interfaces").await;
        assert!(["", "lo"].contains(&interfaces.as_str()), "{interfaces}");
    }
    bench.finish().await;
}

/// [`Engine::snapshot`] lets the machine go on; [`Engine::restore`] goes on from there, or starts anew where memory is not
/// carried.
pub async fn a_snapshot_and_its_restore_carry_memory_and_disk<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let mut parent = bench.boot().await;
    parent.ask("set word before").await;
    parent.ask("write /word before").await;
    let snapshot = bench.snapshot(&parent.id).await;
    assert_eq!(parent.ask("get word").await, "before", "the parent goes on");
    bench.stop(&parent.id).await;
    let mut child = bench.restore(&snapshot).await;
    let carried = if bench.engine.capabilities().memory_snapshot {
        "before"
    } else {
        "nothing"
    };
    assert_eq!(child.ask("get word").await, carried);
    if bench.engine.capabilities().memory_snapshot {
        assert_eq!(child.ask("read /word").await, "before");
    }
    bench.finish().await;
}

/// Machines from one snapshot share nothing that one of them can change.
pub async fn two_restores_and_their_parent_are_independent<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let mut parent = bench.boot().await;
    parent.ask("set word parent").await;
    parent.ask("write /word parent").await;
    let snapshot = bench.snapshot(&parent.id).await;
    let mut machines = [bench.restore(&snapshot).await, bench.restore(&snapshot).await, parent];
    for (number, machine) in machines.iter_mut().enumerate() {
        machine.ask(&format!("set word {number}")).await;
        assert_eq!(machine.ask(&format!("write /word {number}")).await, "ok");
    }
    for (number, machine) in machines.iter_mut().enumerate() {
        assert_eq!(machine.ask("get word").await, number.to_string());
        assert_eq!(machine.ask("read /word").await, number.to_string());
    }
    bench.finish().await;
}

/// Root inside may mount the guest folder anew, but what machines share stays as it is.
pub async fn what_machines_share_cannot_be_changed_from_inside<L: Lab>() {
    let bench = Bench::<L>::new().await;
    if bench.engine.capabilities().isolation == atoll_model::Isolation::None {
        return bench.finish().await;
    }
    let before = folder_contents(&bench.plan().guest_dir);
    let snapshot = bench.snapshot_with("shared").await;
    for mut machine in [bench.boot().await, bench.restore(&snapshot).await] {
        // Whether it is refused here or at the write is the engine's business.
        machine.ask(&format!("writable {GUEST_DIR}")).await;
        let file = format!("{GUEST_DIR}/planted");
        assert_ne!(machine.ask(&format!("write {file} planted")).await, "ok");
        assert_ne!(machine.ask(&format!("write {AGENT_PATH} planted")).await, "ok");
        assert_eq!(machine.ask("write /own planted").await, "ok");
    }
    assert_eq!(folder_contents(&bench.plan().guest_dir), before);
    assert!(
        !bench.plan().rootfs.join("own").exists(),
        "a machine's own writes are its own"
    );
    bench.finish().await;
}

fn folder_contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(folder).expect("the folder can be listed");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("an entry").path();
        let contents = std::fs::read(&path).expect("a file");
        (path, contents)
    };
    entries.map(read).collect()
}

/// A snapshot is taken with one size and restored with another: the new one counts.
pub async fn a_restore_takes_its_own_memory_limit<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let snapshot = bench.snapshot_with("sized").await;
    if bench.engine.capabilities().isolation > atoll_model::Isolation::None {
        let mut plan = bench.plan();
        plan.limits = Limits {
            memory_mb: 384,
            ..LIMITS
        };
        let mut larger = Talk::with(bench.engine.restore(plan, snapshot).await.expect("it is restored"));
        assert_eq!(larger.ask("memory").await, (384 << 10).to_string());
        assert_eq!(larger.ask("take 300").await, "ok");
    }
    bench.finish().await;
}

/// What programs ask for their memory and processors is what they may use.
pub async fn the_guest_sees_its_limits<L: Lab>() {
    let bench = Bench::<L>::new().await;
    if bench.engine.capabilities().isolation > atoll_model::Isolation::None {
        let mut machine = bench.boot().await;
        assert_eq!(machine.ask("memory").await, (LIMITS.memory_mb << 10).to_string());
        assert_eq!(machine.ask("processors").await, LIMITS.cpu.to_string());
    }
    bench.finish().await;
}

/// The guest is told that its disk is full, at about its limit, and lives; so does what it is restored into.
pub async fn a_full_disk_is_told_and_the_machine_goes_on<L: Lab>() {
    let bench = Bench::<L>::new().await;
    if bench.engine.capabilities().disk_limit {
        let snapshot = bench.snapshot_with("disk").await;
        for mut machine in [bench.boot().await, bench.restore(&snapshot).await] {
            let answer = machine.ask("fill /big").await;
            let (mebibytes, reason) = answer.split_once(' ').expect("a size and a reason");
            assert_eq!(reason, std::io::ErrorKind::StorageFull.to_string(), "{answer}");
            let size: u64 = mebibytes.parse().expect("a size");
            assert!((LIMITS.disk_mb / 2..=LIMITS.disk_mb).contains(&size), "{answer}");
            assert!(bench.engine.usage(&machine.id).await.unwrap().disk_bytes >= size << 20);
            assert_eq!(machine.ask("set word still").await, "ok");
            bench.stop(&machine.id).await;
        }
    }
    bench.finish().await;
}

/// A guest that starts processes without end harms neither the host nor its own process 1.
pub async fn processes_without_end_leave_the_machine_answering<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let mut machine = bench.boot().await;
    let started: u32 = soon("an end of forking", machine.ask("fork"))
        .await
        .parse()
        .expect("a number");
    assert!(started >= LIMITS.pids / 2, "only {started} processes could be started");
    // An engine may count loosely, as gVisor does, but it must count.
    assert!(started <= LIMITS.pids * 2, "{started} processes could be started");
    assert_eq!(machine.ask("set word still").await, "ok");
    bench.finish().await;
}

/// Memory over the limit ends the machine, says so, and touches nobody else.
pub async fn memory_without_end_ends_the_machine_only<L: Lab>() {
    let bench = Bench::<L>::new().await;
    if bench.engine.capabilities().isolation > atoll_model::Isolation::None {
        let mut bystander = bench.boot().await;
        let mut greedy = bench.boot().await;
        greedy.say("take 2000").await;
        let end = soon("the end of the greedy machine", &mut greedy.exited).await;
        assert!(end.oom, "{end:?}");
        assert!(soon("the end of its link", greedy.is_ended()).await);
        assert_eq!(bystander.ask("set word still").await, "ok");
    }
    bench.finish().await;
}

/// [`Engine::stop`] removes processes, groups, mounts and files, and is `Ok` when there is nothing.
pub async fn stop_leaves_nothing_and_may_be_repeated<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let mut machine = bench.boot().await;
    assert!(
        !bench.traces(&machine.id).is_empty(),
        "a running machine can be found by its id"
    );
    bench.stop(&machine.id).await;
    soon("the end of the stopped machine", &mut machine.exited).await;
    assert!(soon("the end of its link", machine.is_ended()).await);
    bench.stop(&machine.id).await;
    bench.stop(&MachineId::from(SandboxId::random())).await;
    bench.finish().await;
}

/// A start whose future is dropped at any moment, then `stop`: nothing is left.
pub async fn stop_after_a_start_that_was_cut_short_leaves_nothing<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let snapshot = bench.snapshot_with("cut").await;
    for millis in [0, 1, 2, 4, 8, 15, 25, 40, 60, 90, 130, 180, 250] {
        let plan = bench.plan();
        let id = plan.id.clone();
        let start = bench.engine.restore(plan, snapshot.clone());
        drop(tokio::time::timeout(Duration::from_millis(millis), start).await);
        bench.stop(&id).await;
    }
    bench.finish().await;
}

/// A start that fails is an error with a reason, and `stop` sweeps up after it.
pub async fn a_failed_start_leaves_nothing_after_stop<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let empty = tempfile::tempdir().expect("a temporary folder");
    let mut plan = bench.plan();
    plan.guest_dir = empty.path().to_owned();
    let id = plan.id.clone();
    // An engine may also make a machine that ends at once.
    match bench.engine.boot(plan).await {
        Ok(mut machine) => drop(soon("the end of a machine without a program", &mut machine.exited).await),
        Err(error) => assert!(error.to_string().len() > 20, "{error}"),
    }
    bench.stop(&id).await;
    bench.finish().await;
}

/// A restarted server finds its machines alive, with what was said to them meanwhile.
pub async fn a_new_engine_adopts_what_the_old_one_left<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let mut machine = bench.boot().await;
    machine.ask("set word kept").await;
    let id = machine.id.clone();
    drop(machine);
    let engine = bench.engine_after_restart().await;
    assert_eq!(engine.inventory().await.unwrap(), std::slice::from_ref(&id));
    let adopted = engine.adopt(&id).await.expect("it can be adopted").expect("it lives");
    let mut adopted = Talk::with(adopted);
    assert_eq!(adopted.ask("get word").await, "kept");
    assert!(engine.usage(&id).await.unwrap().host_processes > 0);
    kill_all(&id);
    soon("the end of the adopted machine", &mut adopted.exited).await;
    engine.stop(&id).await.expect("it stops");
    bench.finish().await;
}

/// [`Engine::adopt`] is `None` for what does not run.
pub async fn what_has_ended_is_not_adopted<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let mut machine = bench.boot().await;
    kill_all(&machine.id);
    soon("the end of the machine", &mut machine.exited).await;
    assert!(
        bench
            .engine
            .adopt(&machine.id)
            .await
            .expect("it can be asked")
            .is_none()
    );
    assert!(
        bench
            .engine
            .adopt(&bench.plan().id)
            .await
            .expect("it can be asked")
            .is_none()
    );
    bench.finish().await;
}

/// The exit watch and the link tell that the machine was killed from outside.
pub async fn a_killed_machine_is_noticed<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let mut machine = bench.boot().await;
    machine.ask("set word alive").await;
    kill_all(&machine.id);
    let end = soon("the end of the machine", &mut machine.exited).await;
    assert!(!end.oom, "{end:?}");
    assert!(soon("the end of its link", machine.is_ended()).await);
    bench.finish().await;
}

/// The machine ends with its process 1.
pub async fn an_exit_of_process_one_is_noticed<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let mut machine = bench.boot().await;
    machine.say("exit").await;
    let end = soon("the end of the machine", &mut machine.exited).await;
    assert!(!end.oom, "{end:?}");
    bench.finish().await;
}

/// [`Engine::inventory`] lists what runs, what has ended and what never came to run.
pub async fn the_inventory_is_complete<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let running = bench.boot().await;
    let mut ended = bench.boot().await;
    kill_all(&ended.id);
    soon("the end of the machine", &mut ended.exited).await;
    let listed: BTreeSet<MachineId> = bench.engine.inventory().await.unwrap().into_iter().collect();
    assert_eq!(listed, BTreeSet::from([running.id.clone(), ended.id.clone()]));
    for id in listed {
        bench.stop(&id).await;
    }
    assert_eq!(bench.engine.inventory().await.unwrap(), []);
    bench.finish().await;
}

/// Many at once neither fail nor mix up.
pub async fn twenty_restores_at_once_all_answer<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let snapshot = bench.snapshot_with("many").await;
    let mut machines = join_all((0..20).map(|_| bench.restore(&snapshot))).await;
    let words = join_all(machines.iter_mut().enumerate().map(|(number, machine)| async move {
        machine.ask(&format!("set word {number}")).await;
        machine.ask("get word").await
    }));
    let expected: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(words.await, expected);
    join_all(machines.iter().map(|machine| bench.engine.stop(&machine.id))).await;
    for machine in &machines {
        let left = bench.traces(&machine.id);
        assert!(left.is_empty(), "left after stop: {left:#?}");
    }
    bench.finish().await;
}

/// [`Engine::usage`] counts the guest's work.
pub async fn usage_grows_with_work<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let mut machine = bench.boot().await;
    let before = bench.engine.usage(&machine.id).await.unwrap();
    machine.ask("spin 300").await;
    machine.ask("take 64").await;
    let after = bench.engine.usage(&machine.id).await.unwrap();
    assert!(after.cpu_micros >= before.cpu_micros + 100_000, "{before:?} {after:?}");
    assert!(
        after.memory_bytes >= before.memory_bytes + (32 << 20),
        "{before:?} {after:?}"
    );
    assert!(after.memory_peak_bytes >= after.memory_bytes, "{after:?}");
    assert!(after.host_processes > 0);
    bench.finish().await;
}

/// [`Engine::pause`] stops it in the middle of its work, [`Engine::resume`] lets it go on with that; both may be repeated.
pub async fn a_paused_machine_stands_still_and_goes_on<L: Lab>() {
    let bench = Bench::<L>::new().await;
    if bench.engine.capabilities().pause {
        let mut machine = bench.boot().await;
        machine.say("spin 200").await;
        let used = async || {
            bench
                .engine
                .usage(&machine.id)
                .await
                .expect("it can be asked")
                .cpu_micros
        };
        for _ in 0..2 {
            bench.engine.pause(&machine.id).await.expect("it is paused");
        }
        let before = used().await;
        // Long enough for what does not stand still to be done with its work.
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(used().await, before, "it does not work while it is paused");
        for _ in 0..2 {
            bench.engine.resume(&machine.id).await.expect("it is resumed");
        }
        assert_eq!(soon("the end of its work", machine.ask("set word still")).await, "ok");
        assert_eq!(
            machine.ask("get word").await,
            "ok",
            "the answers are those to what was said, in order"
        );
    }
    bench.finish().await;
}

/// A machine that is paused survives its server, goes on after it, and can be stopped as it is.
pub async fn a_paused_machine_is_adopted_and_stopped<L: Lab>() {
    let bench = Bench::<L>::new().await;
    if bench.engine.capabilities().pause {
        let mut machine = bench.boot().await;
        machine.ask("set word kept").await;
        let id = machine.id.clone();
        bench.engine.pause(&id).await.expect("it is paused");
        drop(machine);
        let engine = bench.engine_after_restart().await;
        let adopted = engine.adopt(&id).await.expect("it can be adopted").expect("it lives");
        let mut adopted = Talk::with(adopted);
        engine.resume(&id).await.expect("it is resumed");
        assert_eq!(soon("an answer", adopted.ask("get word")).await, "kept");
        engine.pause(&id).await.expect("it is paused again");
        soon("its end", engine.stop(&id)).await.expect("it stops");
        soon("the end of the machine", &mut adopted.exited).await;
        let never = bench.plan().id;
        for missing in [engine.pause(&never).await, engine.resume(&never).await] {
            assert!(matches!(missing, Err(EngineError::NoMachine(named)) if named == never));
        }
    }
    bench.finish().await;
}

/// Asking about a machine that does not exist is told as that.
pub async fn a_machine_that_is_not_there_is_named<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let id = bench.plan().id;
    assert!(matches!(bench.engine.usage(&id).await, Err(EngineError::NoMachine(named)) if named == id));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let error = bench.engine.snapshot(&id, folder.path().to_owned()).await;
    assert!(matches!(error, Err(EngineError::NoMachine(named)) if named == id));
    bench.finish().await;
}

/// A server that dies at any moment leaves machines that can be adopted, or that `stop` can sweep up; none is lost.
pub async fn a_server_killed_while_it_starts_machines_loses_none<L: Lab>() {
    let bench = Bench::<L>::new().await;
    let snapshot = bench.snapshot_with("crash").await;
    let mut adopted = 0;
    for millis in [40, 80, 120, 170, 230, 300, 400, 600, 1500, 6000, 24_000] {
        // The long ones are for a host so busy that none has come to have a machine.
        if millis > 1500 && adopted > 0 {
            break;
        }
        let mut server = victim::start(bench.state(), &snapshot, &bench.plan().guest_dir);
        tokio::time::sleep(Duration::from_millis(millis)).await;
        server.kill().expect("the server can be killed");
        server.wait().expect("the server ends");
        let engine = bench.engine_after_restart().await;
        for id in engine.inventory().await.expect("machines are listed") {
            if let Some(machine) = engine.adopt(&id).await.expect("it can be asked") {
                assert_eq!(soon("an answer", Talk::with(machine).ask("set word still")).await, "ok");
                adopted += 1;
            }
            bench.stop(&id).await;
        }
    }
    assert!(adopted > 0, "no server lived long enough to have a machine");
    bench.finish().await;
}
