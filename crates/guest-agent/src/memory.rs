//! How much memory is in use, how much may be, and when what was held is free.

use std::time::Duration;

use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use crate::tree;

pub(crate) const MIB: u64 = 1 << 20;
/// How long the memory of a killed process may take to be free. The kernel of a machine gives it back behind the process's
/// end, and late where the host is busy.
const RELEASE_TIME: Duration = Duration::from_secs(2);
const RELEASE_STEP: Duration = Duration::from_millis(5);

/// How much may be in use before somebody is ended, in bytes.
pub(crate) fn ceiling_of(limit: u64) -> u64 {
    limit - (limit / 16).clamp(24 * MIB, 128 * MIB).min(limit / 2)
}

/// Whether `more` bytes leave a tenth of the limit, and as much as the guard itself wants.
pub(crate) fn has_room(limit: u64, used: u64, more: u64) -> bool {
    used.saturating_add(more) <= ceiling_of(limit).min(limit - limit / 10)
}

/// Waits until what was killed has ended and its memory is free, at most [`RELEASE_TIME`]. `look` gives the memory in use, in
/// bytes, once it has ended. Free: less than the ceiling is in use, and it has become no less since the last look.
pub(crate) async fn wait_for_release(ceiling: u64, look: impl Fn() -> Option<u64>) {
    let deadline = Instant::now() + RELEASE_TIME;
    let mut before = None;
    while Instant::now() < deadline {
        let used = look();
        if used.is_some_and(|used| used < ceiling) && used >= before && before.is_some() {
            return;
        }
        before = used;
        sleep(RELEASE_STEP).await;
    }
}

/// Memory in use by programs, in bytes. Where the machine's total is far above the limit the machine is not ours alone
/// (tests on a host), and only the agent's own processes count.
pub(crate) fn used_memory(limit: u64) -> u64 {
    let meminfo = tree::kernel_file("/proc/meminfo");
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
            .map(|kib| kib * 1024)
    };
    match (field("MemTotal:"), field("MemAvailable:")) {
        (Some(total), Some(available)) if total <= limit * 3 / 2 + 512 * MIB => total.saturating_sub(available),
        _ => tree::all_processes()
            .into_iter()
            .filter(|process| process.mark.is_some())
            .map(|process| resident_bytes(process.pid))
            .sum(),
    }
}

/// What a process holds alone, in bytes; 0 when it is gone.
pub(crate) fn resident_bytes(pid: Pid) -> u64 {
    let statm = tree::kernel_file(&format!("/proc/{pid}/statm"));
    let mut pages = statm
        .split_whitespace()
        .skip(1)
        .map(|field| field.parse::<u64>().unwrap_or(0));
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(shared) * 4096
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How long it waits, and how often it looks, if these are the looks and the last of them stays as it is.
    async fn waited(looks: &[Option<u64>]) -> (Duration, usize) {
        let begun = Instant::now();
        let looked = Cell::new(0);
        wait_for_release(100, || {
            looked.set(looked.get() + 1);
            looks[(looked.get() - 1).min(looks.len() - 1)]
        })
        .await;
        (begun.elapsed(), looked.get())
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_free_when_its_holder_has_ended_and_it_falls_no_more() {
        assert_eq!(waited(&[Some(50)]).await.1, 2);
        let (time, looks) = waited(&[None, None, Some(120), Some(110), Some(90), Some(60), Some(60)]).await;
        assert_eq!((time, looks), (6 * RELEASE_STEP, 7));
        let mut late = vec![None; 100];
        late.extend([Some(130); 200]);
        late.push(Some(40));
        assert_eq!(waited(&late).await.1, 302);
    }

    #[test]
    fn a_new_context_leaves_a_tenth_of_the_memory() {
        for (limit, most) in [(2000, 1800), (1000, 900), (128, 104)] {
            assert!(has_room(limit * MIB, (most - 20) * MIB, 20 * MIB), "{limit}");
            assert!(!has_room(limit * MIB, (most - 20) * MIB, 21 * MIB), "{limit}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn memory_that_others_hold_is_not_awaited_for_ever() {
        for look in [None, Some(100)] {
            let (time, _) = waited(&[look]).await;
            assert!((RELEASE_TIME..RELEASE_TIME * 2).contains(&time), "{time:?}");
        }
    }
}
