//! What bounds a guest's writes: `runsc` itself where it can, else a small file system for each machine.

use std::{
    io,
    path::{Path, PathBuf},
};

use atoll_engine::EngineError;
use atoll_host::{image, mounts, private};
use tokio::sync::Mutex;

use crate::folder::{MachineFolder, host};

/// The disks of machines.
#[derive(Debug)]
pub(crate) struct Disks {
    /// Holds an empty image of each size class that was ever asked for.
    blanks: PathBuf,
    bound: Bound,
    formatting: Mutex<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// `runsc` refuses writes over the size.
    Runsc,
    /// A file system of that size refuses them.
    Image,
    /// Nothing does.
    Nothing,
}

impl Disks {
    /// Finds out what can bound disks here.
    pub(crate) fn open(blanks: PathBuf, by_runsc: bool) -> Result<Self, EngineError> {
        private::folder(&blanks).map_err(host("making the folder of empty disks"))?;
        let bound = if by_runsc {
            Bound::Runsc
        } else if Path::new("/dev/loop-control").exists() && image::is_formatter_installed() {
            Bound::Image
        } else {
            Bound::Nothing
        };
        Ok(Self {
            blanks,
            bound,
            formatting: Mutex::new(()),
        })
    }

    pub(crate) fn are_bounded(&self) -> bool {
        self.bound != Bound::Nothing
    }

    pub(crate) fn are_images(&self) -> bool {
        self.bound == Bound::Image
    }

    /// What an operator should know.
    pub(crate) fn warning(&self) -> Option<String> {
        (!self.are_bounded()).then(|| {
            "a guest can fill this host's disk: this runsc has no size for overlays, and there are no loop devices (/dev/loop-control) or no mkfs.ext4 (package e2fsprogs)".to_owned()
        })
    }

    /// The size that `runsc` is to be told, in MiB.
    pub(crate) fn told_to_runsc(&self, mib: u64) -> Option<u64> {
        (self.bound == Bound::Runsc).then_some(mib)
    }

    /// Makes sure that an empty disk of that size can be copied. Milliseconds once, nothing afterwards.
    pub(crate) async fn prepare(&self, mib: u64) -> Result<Option<PathBuf>, EngineError> {
        if self.bound != Bound::Image {
            return Ok(None);
        }
        let mib = size_class(mib);
        let blank = self.blanks.join(format!("{mib}.img"));
        if blank.exists() {
            return Ok(Some(blank));
        }
        let _one_at_a_time = self.formatting.lock().await;
        if !blank.exists() {
            let unfinished = self.blanks.join("unfinished");
            image::format(&unfinished, mib)
                .await
                .map_err(|error| EngineError::Host {
                    context: format!("formatting a disk of {mib} MiB"),
                    source: io::Error::other(error),
                })?;
            std::fs::rename(&unfinished, &blank).map_err(host("keeping an empty disk"))?;
        }
        Ok(Some(blank))
    }

    /// Gives a machine its disk: a copy of `blank`, mounted; or only a folder.
    pub(crate) fn attach(blank: Option<&Path>, folder: &MachineFolder) -> io::Result<()> {
        std::fs::create_dir(folder.disk())?;
        if let Some(blank) = blank {
            image::copy(blank, &folder.disk_image())?;
            image::mount_image(&folder.disk_image(), &folder.disk())?;
        }
        Ok(())
    }

    /// Unmounts whatever is mounted in a machine's folder.
    pub(crate) fn detach(folder: &MachineFolder) -> io::Result<()> {
        for mount in mounts::below(folder.path())? {
            mounts::unmount(&mount)?;
        }
        Ok(())
    }
}

/// The size that an image has when `mib` are asked for: at most a quarter more. Each size costs the host an empty image for
/// good, so there are few: four between a power of two and the next.
fn size_class(mib: u64) -> u64 {
    let step = (mib.next_power_of_two() / 8).max(1);
    mib.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_disk_has_what_was_asked_for_and_there_are_few_sizes() {
        let classes: BTreeSet<u64> = (64..=1_048_576).map(size_class).collect();
        assert_eq!(classes.len(), 57);
        for mib in [64, 65, 100, 128, 256, 1000, 8192, 1_048_576] {
            let class = size_class(mib);
            assert!((mib..=mib + mib / 4).contains(&class), "{mib}: {class}");
        }
        assert_eq!([64, 128, 256, 8192].map(size_class), [64, 128, 256, 8192]);
    }
}
