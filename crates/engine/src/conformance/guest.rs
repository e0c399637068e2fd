//! Process 1 of the machines that the conformance suite makes: answers one line to each line. Built by the suite as a
//! static program of its own, so it has only the standard library.

use std::{
    collections::HashMap,
    fs,
    hint::black_box,
    io::{self, BufRead, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

fn main() {
    // What `fork` below starts.
    match std::env::args().nth(1).as_deref() {
        Some("sleep") => return thread::sleep(Duration::from_secs(3600)),
        Some("bomb") => return println!("{}", bomb()),
        _ => {}
    }
    let mut memory: HashMap<String, String> = HashMap::new();
    let mut ballast: Vec<Vec<u8>> = Vec::new();
    let mut input = io::stdin().lock();
    let mut line = String::new();
    loop {
        line.clear();
        match input.read_line(&mut line) {
            Ok(0) => return,
            Ok(_) => {}
            // The link may be in non-blocking mode, which is its owner's business.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            Err(_) => return,
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words.as_slice() {
            ["set", key, value] => {
                memory.insert((*key).to_owned(), (*value).to_owned());
                "ok".to_owned()
            }
            ["get", key] => memory.get(*key).cloned().unwrap_or_else(|| "nothing".to_owned()),
            ["write", path, text] => outcome(fs::write(path, text)),
            ["read", path] => fs::read_to_string(path).unwrap_or_else(|error| error.kind().to_string()),
            ["fill", path] => fill(path),
            ["spin", millis] => {
                spin(millis.parse().unwrap_or(0));
                "ok".to_owned()
            }
            ["take", mebibytes] => {
                let size = mebibytes.parse::<usize>().unwrap_or(0) << 20;
                ballast.push((0..size).map(|index| (index >> 12) as u8 | 1).collect());
                "ok".to_owned()
            }
            ["memory"] => total_memory(),
            ["processors"] => thread::available_parallelism().map_or_else(|error| error.to_string(), |n| n.to_string()),
            ["fork"] => fork(),
            ["writable", path] => mount_writable(path),
            ["interfaces"] => interfaces(),
            ["exit"] => return,
            _ => "what".to_owned(),
        };
        let mut output = io::stdout().lock();
        if writeln!(output, "{answer}").and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

unsafe extern "C" {
    /// mount(2).
    fn mount(source: *const i8, target: *const i8, kind: *const i8, flags: u64, data: *const i8) -> i32;
}

/// Mounts what is there once more, without "read-only".
fn mount_writable(path: &str) -> String {
    const REMOUNT: u64 = 32;
    let Ok(target) = std::ffi::CString::new(path) else { return "a NUL byte".to_owned() };
    let none = std::ptr::null();
    // SAFETY: the only pointer that is not null is a C string that lives until the call is over.
    match unsafe { mount(none, target.as_ptr(), none, REMOUNT, none) } {
        0 => "ok".to_owned(),
        _ => io::Error::last_os_error().to_string(),
    }
}

fn outcome(result: io::Result<()>) -> String {
    result.map_or_else(|error| error.kind().to_string(), |()| "ok".to_owned())
}

/// Writes until the disk is full: "MEBIBYTES REASON".
fn fill(path: &str) -> String {
    let chunk = vec![0xA5; 1 << 20];
    let write = |written: &mut usize| -> io::Result<()> {
        let mut file = fs::File::create(path)?;
        while *written < 4096 {
            file.write_all(&chunk)?;
            *written += 1;
        }
        Ok(())
    };
    let mut written = 0;
    let reason = outcome(write(&mut written));
    format!("{written} {reason}")
}

fn spin(millis: u64) {
    let end = Instant::now() + Duration::from_millis(millis);
    let mut value = 0_u64;
    while Instant::now() < end {
        for step in 0..10_000 {
            value = black_box(value.wrapping_mul(31).wrapping_add(step));
        }
    }
}

fn total_memory() -> String {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    total.unwrap_or("unknown").trim().trim_end_matches(" kB").to_owned()
}

/// Has a process start others without end, as process 1 must start whatever it does not trust: how many.
fn fork() -> String {
    let started = Command::new("/proc/self/exe").arg("bomb").output();
    started.map_or_else(|error| error.to_string(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Starts processes that stay until one cannot be started.
fn bomb() -> usize {
    let group = Path::new("/sys/fs/cgroup/pids");
    if group.is_dir() {
        let inside = group.join("work");
        let enter = || {
            fs::create_dir(&inside)?;
            fs::write(inside.join("pids.max"), "64")?;
            fs::write(inside.join("cgroup.procs"), std::process::id().to_string())
        };
        if let Err(error) = enter() {
            println!("{error}");
        }
    }
    let mut children = Vec::new();
    while let Ok(child) = Command::new("/proc/self/exe").arg("sleep").stdout(Stdio::null()).spawn() {
        children.push(child);
    }
    let started = children.len();
    for child in &mut children {
        let _ = child.kill();
        let _ = child.wait();
    }
    started
}

fn interfaces() -> String {
    let text = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let names: Vec<&str> = text.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim).collect();
    names.join(",")
}
