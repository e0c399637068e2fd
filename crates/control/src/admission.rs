//! Whether the host has room for one more sandbox. Asked before anything is made, so a "no" costs nothing.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use atoll_model::{ErrorCode, Refusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{config::ControlConfig, refusal};

const MIB: u64 = 1 << 20;

/// What the host has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Memory that programs could get now, in bytes.
    pub(crate) memory_bytes: u64,
    /// Free space where machines keep their disks, in bytes.
    pub(crate) disk_bytes: u64,
}

/// Measures the host.
pub(crate) trait HostRoom: fmt::Debug + Send + Sync + 'static {
    /// What is left now. Called at each create; cheap.
    ///
    /// # Errors
    /// The kernel does not say.
    fn measure(&self) -> io::Result<Room>;
}

/// This machine, as `/proc/meminfo` and `statvfs` tell it.
#[derive(Debug)]
pub(crate) struct ThisHost {
    state_dir: PathBuf,
}

impl ThisHost {
    /// Measures the file system of `state_dir`.
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self {
            state_dir: state_dir.to_owned(),
        }
    }
}

impl HostRoom for ThisHost {
    fn measure(&self) -> io::Result<Room> {
        let meminfo = std::fs::read_to_string("/proc/meminfo")?;
        let missing = || io::Error::other("/proc/meminfo has no MemAvailable");
        let disk = nix::sys::statvfs::statvfs(&self.state_dir)?;
        Ok(Room {
            memory_bytes: memory_available(&meminfo).ok_or_else(missing)?,
            disk_bytes: disk.blocks_available().saturating_mul(disk.fragment_size()),
        })
    }
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn memory_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Decides on creates.
#[derive(Debug)]
pub(crate) struct Admission {
    host: Arc<dyn HostRoom>,
    places: Arc<Semaphore>,
    max_live: usize,
    /// Creates under way, whose memory is not yet in what the host reports.
    booting: Arc<AtomicU64>,
    memory_reserve: u64,
    memory_per_create: u64,
    disk_reserve: u64,
    /// Bytes of disk that live sandboxes may still grow to.
    promised: Arc<AtomicU64>,
    disk_overcommit: u64,
}

/// A place on this host, held as long as the machine may exist.
#[derive(Debug)]
pub(crate) struct Admitted {
    _place: Option<OwnedSemaphorePermit>,
    booting: Option<Booting>,
    _promised: Promised,
}

impl Admitted {
    /// The machine runs: what it holds is in the host's own figures from now on.
    pub(crate) fn booted(&mut self) {
        self.booting = None;
    }
}

#[derive(Debug)]
struct Booting(Arc<AtomicU64>);

impl Drop for Booting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// A disk's ceiling, counted as long as the disk may exist.
#[derive(Debug)]
struct Promised {
    all: Arc<AtomicU64>,
    bytes: u64,
}

impl Promised {
    /// The promise, and the sum of all with it.
    fn new(all: &Arc<AtomicU64>, disk_mb: u64) -> (Self, u64) {
        let bytes = disk_mb.saturating_mul(MIB);
        let sum = all.fetch_add(bytes, SeqCst).saturating_add(bytes);
        let all = Arc::clone(all);
        (Self { all, bytes }, sum)
    }
}

impl Drop for Promised {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, SeqCst);
    }
}

impl Admission {
    pub(crate) fn new(config: &ControlConfig, host: Arc<dyn HostRoom>) -> Self {
        Self {
            host,
            places: Arc::new(Semaphore::new(config.max_live_sandboxes)),
            max_live: config.max_live_sandboxes,
            booting: Arc::default(),
            memory_reserve: config.memory_reserve_mb.saturating_mul(MIB),
            memory_per_create: config.memory_per_create_mb.saturating_mul(MIB),
            disk_reserve: config.disk_reserve_mb.saturating_mul(MIB),
            promised: Arc::default(),
            disk_overcommit: u64::from(config.disk_overcommit),
        }
    }

    /// A place for a new sandbox with a disk of so many MiB.
    pub(crate) fn admit(&self, disk_mb: u64) -> Result<Admitted, Refusal> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            refusal::no_capacity(format!(
                "{} sandboxes live on this host, which is its limit; delete one or raise max_live_sandboxes",
                self.max_live
            ))
        })?;
        let booting = Booting(Arc::clone(&self.booting));
        let at_once = booting.0.fetch_add(1, SeqCst) + 1;
        let room = self
            .host
            .measure()
            .map_err(|error| refusal::internal("the host's memory can't be read", &error))?;
        let needed = self
            .memory_reserve
            .saturating_add(self.memory_per_create.saturating_mul(at_once));
        if room.memory_bytes < needed {
            return Err(refusal::no_capacity(format!(
                "the host has {} MiB of memory left and a create needs {} MiB; delete a sandbox or try again later",
                room.memory_bytes / MIB,
                needed / MIB
            )));
        }
        if room.disk_bytes < self.disk_reserve {
            let sentence = format!(
                "the host has {} MiB of disk left and keeps {} MiB free; nothing was created",
                room.disk_bytes / MIB,
                self.disk_reserve / MIB
            );
            return Err(Refusal::new(ErrorCode::InsufficientStorage, sentence).retry_after(30));
        }
        let (promised, sum) = Promised::new(&self.promised, disk_mb);
        let most = (room.disk_bytes - self.disk_reserve).saturating_mul(self.disk_overcommit);
        if sum > most {
            let sentence = format!(
                "this host may promise its sandboxes {} MiB of disk now, {} times what is free, and with this one it would \
                 promise {} MiB; ask for less disk_mb or delete a sandbox; nothing was created",
                most / MIB,
                self.disk_overcommit,
                sum / MIB
            );
            return Err(Refusal {
                field: Some("disk_mb".to_owned()),
                ..Refusal::new(ErrorCode::InsufficientStorage, sentence).retry_after(30)
            });
        }
        Ok(Admitted {
            _place: Some(place),
            booting: Some(booting),
            _promised: promised,
        })
    }

    /// The place of a sandbox that lives already; there is one even if the limit was lowered meanwhile.
    pub(crate) fn adopt(&self, disk_mb: u64) -> Admitted {
        let (promised, _) = Promised::new(&self.promised, disk_mb);
        Admitted {
            _place: Arc::clone(&self.places).try_acquire_owned().ok(),
            booting: None,
            _promised: promised,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug)]
    struct Given(Mutex<Room>);

    impl HostRoom for Given {
        fn measure(&self) -> io::Result<Room> {
            Ok(*self.0.lock().unwrap())
        }
    }

    fn admission(memory_mb: u64, disk_mb: u64, max_live_sandboxes: usize) -> Admission {
        let config = ControlConfig {
            max_live_sandboxes,
            memory_reserve_mb: 1000,
            memory_per_create_mb: 100,
            disk_reserve_mb: 500,
            disk_overcommit: 2,
            ..ControlConfig::default()
        };
        let room = Room {
            memory_bytes: memory_mb * MIB,
            disk_bytes: disk_mb * MIB,
        };
        Admission::new(&config, Arc::new(Given(Mutex::new(room))))
    }

    fn code(result: Result<Admitted, Refusal>) -> ErrorCode {
        let refusal = result.unwrap_err();
        assert!(refusal.retry_after.is_some());
        refusal.code
    }

    #[test]
    fn a_host_at_its_limit_says_so_until_a_place_is_free() {
        let admission = admission(9999, 9999, 1);
        let first = admission.admit(1).unwrap();
        assert_eq!(code(admission.admit(1)), ErrorCode::NoCapacity);
        drop(first);
        assert!(admission.admit(1).is_ok());
    }

    #[test]
    fn creates_under_way_count_until_they_run() {
        let admission = admission(1250, 9999, 10);
        let mut first = admission.admit(1).unwrap();
        let second = admission.admit(1).unwrap();
        assert_eq!(code(admission.admit(1)), ErrorCode::NoCapacity);
        first.booted();
        assert!(admission.admit(1).is_ok());
        drop((first, second));
    }

    #[test]
    fn a_refused_create_leaves_no_claim_behind() {
        let admission = admission(1099, 9999, 10);
        for _ in 0..100 {
            assert_eq!(code(admission.admit(1)), ErrorCode::NoCapacity);
        }
        assert_eq!(admission.booting.load(SeqCst), 0);
        assert_eq!(admission.places.available_permits(), 10);
    }

    #[test]
    fn a_full_disk_is_told_apart() {
        assert_eq!(code(admission(9999, 499, 10).admit(1)), ErrorCode::InsufficientStorage);
    }

    #[test]
    fn promised_disks_are_summed_until_they_are_gone() {
        let admission = admission(9999, 1500, 10);
        // A thousand MiB are free above the reserve, and two of each may be promised.
        let first = admission.admit(1500).unwrap();
        let refusal = admission.admit(501).unwrap_err();
        assert_eq!(
            (refusal.code, refusal.field.as_deref()),
            (ErrorCode::InsufficientStorage, Some("disk_mb"))
        );
        let adopted = admission.adopt(400);
        assert!(admission.admit(101).is_err());
        assert!(admission.admit(100).is_ok());
        drop((first, adopted));
        assert_eq!(admission.promised.load(SeqCst), 0);
        assert!(admission.admit(2000).is_ok());
    }

    #[test]
    fn meminfo_is_read_in_bytes() {
        let text = "MemTotal:       24595172 kB\nMemFree: 1 kB\nMemAvailable:   20140000 kB\n";
        assert_eq!(memory_available(text), Some(20_140_000 * 1024));
        assert_eq!(memory_available("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn this_host_has_some_room() {
        let room = ThisHost::new(Path::new("/")).measure().unwrap();
        assert!(room.memory_bytes > 0 && room.disk_bytes > 0);
    }
}
