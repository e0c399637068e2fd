//! Files for output that was cut. Their total is bounded: the oldest go first.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    rc::Rc,
};

use atoll_protocol::event::Kind;

/// All files together, in bytes, whatever the machine's memory: the folder may be in memory.
const MOST: u64 = 128 << 20;
/// Which part of the machine's memory they may take, and one file of that.
const SHARE_OF_MEMORY: u64 = 16;
const SHARE_OF_ONE: u64 = 4;
const FULL: &[u8] = b"\n[... the limit of this file is reached; the rest was not kept ...]\n";

/// The folder of spilled output.
#[derive(Debug)]
pub(crate) struct Spill {
    folder: PathBuf,
    serial: Cell<u64>,
    kept: Rc<RefCell<Kept>>,
}

#[derive(Debug)]
struct Kept {
    files: VecDeque<(PathBuf, u64)>,
    total: u64,
    limit: u64,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            files: VecDeque::new(),
            total: 0,
            limit: MOST,
        }
    }
}

/// A file that is being written; removed when dropped, unless it is kept.
#[derive(Debug)]
pub(crate) struct SpillFile {
    file: File,
    path: PathBuf,
    written: u64,
    limit: u64,
    is_kept: bool,
    kept: Rc<RefCell<Kept>>,
}

impl Spill {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            serial: Cell::new(0),
            kept: Rc::default(),
        }
    }

    /// Says how much memory the machine has, in bytes.
    pub(crate) fn set_memory(&self, memory: u64) {
        self.kept.borrow_mut().limit = (memory / SHARE_OF_MEMORY).min(MOST);
    }

    /// A new file for a stream of that kind.
    pub(crate) fn create(&self, kind: Kind) -> io::Result<SpillFile> {
        make_own_folders(&self.folder)?;
        self.serial.set(self.serial.get() + 1);
        let name = match kind {
            Kind::Stdout => "stdout.txt",
            Kind::Stderr => "stderr.txt",
            Kind::Json | Kind::Stdin | Kind::StdinEnd => "result.json",
        };
        // A forked machine goes on counting from the same number in a copy of the same folder: never overwrite.
        let path = self
            .folder
            .join(format!("{:06}-{:08x}-{name}", self.serial.get(), random_suffix()?));
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o644).open(&path)?;
        Ok(SpillFile {
            file,
            path,
            written: 0,
            limit: self.kept.borrow().limit / SHARE_OF_ONE,
            is_kept: false,
            kept: Rc::clone(&self.kept),
        })
    }
}

fn random_suffix() -> io::Result<u32> {
    getrandom::u32().map_err(|error| io::Error::other(error.to_string()))
}

/// Makes the folder and refuses one that somebody else put there.
fn make_own_folders(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    for part in [Some(folder), folder.parent()].into_iter().flatten() {
        let found = fs::symlink_metadata(part)?;
        if !found.is_dir() || found.uid() != nix::unistd::geteuid().as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
    }
    Ok(())
}

impl SpillFile {
    /// Appends; beyond the limit of one file nothing but a note.
    pub(crate) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        if self.written >= self.limit {
            return Ok(());
        }
        let room = usize::try_from(self.limit - self.written).unwrap_or(usize::MAX);
        let piece = &data[..data.len().min(room)];
        self.file.write_all(piece)?;
        self.written += piece.len() as u64;
        if self.written >= self.limit {
            self.file.write_all(FULL)?;
        }
        Ok(())
    }

    /// Lets the file live, and removes the oldest ones beyond the total. Gives its path.
    pub(crate) fn keep(mut self) -> String {
        self.is_kept = true;
        let mut kept = self.kept.borrow_mut();
        kept.files.push_back((self.path.clone(), self.written));
        kept.total += self.written;
        while kept.total > kept.limit
            && kept.files.len() > 1
            && let Some((path, size)) = kept.files.pop_front()
        {
            kept.total -= size;
            // Somebody in the machine may have removed it already.
            let _ = fs::remove_file(path);
        }
        self.path.to_string_lossy().into_owned()
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}
