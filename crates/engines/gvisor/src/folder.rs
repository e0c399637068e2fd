//! What one machine has in its folder.

use std::{
    io,
    path::{Path, PathBuf},
};

use atoll_engine::EngineError;
use atoll_host::{ProcessId, private};
use serde::{Deserialize, Serialize};

/// The folder of one machine, whether it exists or not.
#[derive(Debug, Clone)]
pub(crate) struct MachineFolder {
    path: PathBuf,
    runsc_root: PathBuf,
}

/// What a later process of this server must know to take the machine over. It is written when the machine runs, and not before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The process that is the machine: gVisor's kernel.
    pub(crate) sandbox: ProcessId,
}

impl MachineFolder {
    /// `short` is the same folder under a path that leaves room for the name of a socket.
    pub(crate) fn new(path: PathBuf, short: &Path) -> Self {
        Self {
            path,
            runsc_root: short.join("r"),
        }
    }

    /// The folder: also the OCI bundle, and where the FIFOs are.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path.join("config.json")
    }

    /// What `runsc` is shown as the host's memory.
    pub(crate) fn meminfo(&self) -> PathBuf {
        self.path.join("meminfo")
    }

    /// Where `runsc` writes why it failed.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("runsc.log")
    }

    /// The state of `runsc`; a short path, see [`crate::short_path`].
    pub(crate) fn runsc_root(&self) -> &Path {
        &self.runsc_root
    }

    pub(crate) fn disk_image(&self) -> PathBuf {
        self.path.join("disk.img")
    }

    /// Where what the guest writes is kept.
    pub(crate) fn disk(&self) -> PathBuf {
        self.path.join("disk")
    }

    /// Where `runsc` leaves the number of the sandbox process.
    pub(crate) fn pid(&self) -> PathBuf {
        self.path.join("pid")
    }

    fn record_path(&self) -> PathBuf {
        self.path.join("machine.json")
    }

    /// Says that the machine runs. Appears whole or not at all; need not survive the host's crash, as the machine does not.
    pub(crate) fn write_record(&self, record: &Record) -> io::Result<()> {
        private::write_whole(&self.record_path(), &serde_json::to_vec(record)?)
    }

    /// The record, if the machine ever ran.
    pub(crate) async fn record(&self) -> Result<Option<Record>, EngineError> {
        let text = match tokio::fs::read(self.record_path()).await {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(host("reading a machine's record")(error)),
        };
        let parsed = serde_json::from_slice(&text).map_err(io::Error::from);
        parsed.map(Some).map_err(host("reading a machine's record"))
    }
}

/// Says what was being done when the host refused; a full disk or memory is told apart.
pub(crate) fn host(context: impl Into<String>) -> impl FnOnce(io::Error) -> EngineError {
    let context = context.into();
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::OutOfMemory => {
            EngineError::NoRoom(format!("{context}: {source}"))
        }
        _ => EngineError::Host { context, source },
    }
}
