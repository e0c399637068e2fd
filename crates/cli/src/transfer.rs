//! Files between this machine and a sandbox, streamed, one HTTP request each.

use std::{
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
};

use futures_util::StreamExt;
use indicatif::{MultiProgress, ProgressBar};
use reqwest::{Body, Method, header};
use tokio::{fs, io::AsyncWriteExt};
use tokio_util::io::ReaderStream;

use crate::{
    client::{Client, escape},
    failure::Failure,
    screen::bytes_bar,
    wire::{Entry, Listing},
};

/// Entries of a directory asked for at once.
const PAGE: u32 = 1000;
/// Bytes read from a local file at once.
const CHUNK: usize = 256 * 1024;

/// How many files and bytes went over.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Moved {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl Moved {
    fn one(bytes: u64) -> Self {
        Self { files: 1, bytes }
    }

    fn add(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// One sandbox's files.
#[derive(Debug)]
pub(crate) struct Transfer<'a> {
    client: &'a Client,
    sandbox: &'a str,
    bars: MultiProgress,
}

impl<'a> Transfer<'a> {
    pub(crate) fn new(client: &'a Client, sandbox: &'a str, bars: MultiProgress) -> Self {
        Self { client, sandbox, bars }
    }

    fn url(&self, route: &str, path: &str) -> String {
        format!("/v1/sandboxes/{}/{route}?path={}", escape(self.sandbox), escape(path))
    }

    /// What is at a path of the sandbox; `None` when nothing is, or no such sandbox, which whatever comes next finds.
    pub(crate) async fn stat(&self, path: &str) -> Result<Option<Entry>, Failure> {
        match self.client.get(&self.url("fs/stat", path)).await {
            Ok(entry) => Ok(Some(entry)),
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Sends a file, or a directory with all that it holds, to `to` in the sandbox.
    pub(crate) async fn upload(&self, from: &Path, to: &str) -> Result<Moved, Failure> {
        let metadata = fs::metadata(from).await.map_err(|error| at(from, &error))?;
        if !metadata.is_dir() {
            return self.upload_file(from, to).await;
        }
        let mut moved = Moved::default();
        let mut waiting = vec![(from.to_owned(), to.trim_end_matches('/').to_owned())];
        while let Some((folder, there)) = waiting.pop() {
            let mut entries = fs::read_dir(&folder).await.map_err(|error| at(&folder, &error))?;
            while let Some(entry) = entries.next_entry().await? {
                let path = entry.path();
                let name = entry.file_name();
                let Some(name) = name.to_str() else {
                    return Err(Failure::local(format!(
                        "{} has a name that is not UTF-8",
                        path.display()
                    )));
                };
                let target = format!("{there}/{name}");
                // A link is sent as what it points at, and never followed into a directory: that could go in circles.
                match fs::metadata(&path).await {
                    Ok(found) if found.is_file() => moved.add(self.upload_file(&path, &target).await?),
                    Ok(found) if found.is_dir() && !entry.file_type().await?.is_symlink() => {
                        waiting.push((path, target))
                    }
                    Ok(_) => self.skip(&path.display().to_string()),
                    Err(error) => return Err(at(&path, &error)),
                }
            }
        }
        Ok(moved)
    }

    async fn upload_file(&self, from: &Path, to: &str) -> Result<Moved, Failure> {
        let file = fs::File::open(from).await.map_err(|error| at(from, &error))?;
        let metadata = file.metadata().await?;
        let (size, mode) = (metadata.len(), metadata.permissions().mode() & 0o777);
        let bar = self.bars.add(bytes_bar(Some(size), &name_of(from)));
        let counted = bar.clone();
        let stream = ReaderStream::with_capacity(file, CHUNK).inspect(move |chunk| {
            if let Ok(chunk) = chunk {
                counted.inc(chunk.len() as u64);
            }
        });
        let request = self
            .client
            .request(Method::PUT, &format!("{}&mode={mode:o}", self.url("fs", to)))
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .body(Body::wrap_stream(stream));
        let sent = self.client.send(request).await;
        self.done(&bar);
        sent.map(|_| Moved::one(bar.position()))
    }

    /// Fetches a file, or a directory with all that it holds, to `to` on this machine.
    pub(crate) async fn download(&self, from: &str, to: &Path) -> Result<Moved, Failure> {
        let entry: Entry = self.client.get(&self.url("fs/stat", from)).await?;
        if !entry.is_dir {
            return self.download_file(from, to, &entry).await;
        }
        let mut moved = Moved::default();
        let mut waiting = vec![(from.trim_end_matches('/').to_owned(), to.to_owned())];
        while let Some((there, folder)) = waiting.pop() {
            make_plain_directory(&folder).await?;
            for entry in self.list(&there).await? {
                let path = format!("{there}/{}", entry.name);
                let target = folder.join(safe_name(&entry.name)?);
                match entry.mode.as_str() {
                    "d" => waiting.push((path, target)),
                    "f" => moved.add(self.download_file(&path, &target, &entry).await?),
                    _ => self.skip(&path),
                }
            }
        }
        Ok(moved)
    }

    /// A directory's entries, page by page.
    async fn list(&self, path: &str) -> Result<Vec<Entry>, Failure> {
        let mut entries = Vec::new();
        let mut after = String::new();
        loop {
            let url = format!("{}&limit={PAGE}{after}", self.url("fs/dir", path));
            let page: Listing = self.client.get(&url).await?;
            entries.extend(page.entries.unwrap_or_default());
            match page.next {
                Some(next) => after = format!("&after={}", escape(&next)),
                None => return Ok(entries),
            }
        }
    }

    /// The file appears whole under its name, or not at all.
    async fn download_file(&self, from: &str, to: &Path, entry: &Entry) -> Result<Moved, Failure> {
        let response = self
            .client
            .send(self.client.request(Method::GET, &self.url("fs", from)))
            .await?;
        let bar = self.bars.add(bytes_bar(response.content_length(), from));
        let folder = to
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let draft = tempfile::Builder::new()
            .prefix(".atoll-")
            .tempfile_in(folder)
            .map_err(|error| at(folder, &error))?;
        let mut file = fs::File::from_std(draft.reopen()?);
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| self.client.broken(&error))?;
            file.write_all(&chunk).await.map_err(|error| at(to, &error))?;
            bar.inc(chunk.len() as u64);
        }
        file.flush().await?;
        self.done(&bar);
        let mode = u32::from_str_radix(&entry.permissions, 8).unwrap_or(0o644);
        draft.as_file().set_permissions(Permissions::from_mode(mode & 0o777))?;
        draft.persist(to).map_err(|failed| at(to, &failed.error))?;
        Ok(Moved::one(bar.position()))
    }

    fn done(&self, bar: &ProgressBar) {
        bar.finish_and_clear();
        self.bars.remove(bar);
    }

    fn skip(&self, what: &str) {
        self.bars
            .suspend(|| eprintln!("skipped {what}: neither a file nor a directory"));
    }
}

/// Makes a directory of our own; a link in its place would lead the sandbox's files elsewhere.
async fn make_plain_directory(path: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(path).await {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(Failure::local(format!("{} exists and is no directory", path.display()))),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
            fs::create_dir(path).await.map_err(|error| at(path, &error))
        }
        Err(error) => Err(at(path, &error)),
    }
}

/// A name that the sandbox gave, only if it is one plain file name.
fn safe_name(name: &str) -> Result<&Path, Failure> {
    let path = Path::new(name);
    let mut parts = path.components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(only)), None) if only == name => Ok(path),
        _ => Err(Failure::local(format!(
            "the sandbox names a file {name:?}, which is not a plain name"
        ))),
    }
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn at(path: &Path, error: &io::Error) -> Failure {
    Failure::local(format!("{}: {error}", path.display()))
}

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// On this machine.
    Here(PathBuf),
    /// In a sandbox, at an absolute path.
    There { sandbox: String, path: String },
}

impl std::str::FromStr for Place {
    type Err = String;

    /// `SANDBOX:/path`, or a local path. A colon after the first slash belongs to the path.
    fn from_str(text: &str) -> Result<Self, String> {
        let Some((sandbox, path)) = text.split_once(':').filter(|(before, _)| !before.contains('/')) else {
            return Ok(Self::Here(text.into()));
        };
        if sandbox.is_empty() {
            return Err("the sandbox's id is missing before the colon".to_owned());
        }
        if !path.starts_with('/') {
            return Err(format!(
                "the path in the sandbox must be absolute, as in {sandbox}:/work/{path}"
            ));
        }
        Ok(Self::There {
            sandbox: sandbox.to_owned(),
            path: path.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_in_a_sandbox_when_an_id_stands_before_the_colon() {
        assert_eq!("a/b:c".parse(), Ok(Place::Here("a/b:c".into())));
        assert_eq!("./x".parse(), Ok(Place::Here("./x".into())));
        let there = Place::There {
            sandbox: "id".to_owned(),
            path: "/w".to_owned(),
        };
        assert_eq!("id:/w".parse(), Ok(there));
        assert!("id:w".parse::<Place>().is_err());
        assert!(":/w".parse::<Place>().is_err());
    }

    #[test]
    fn a_name_from_the_sandbox_cannot_leave_the_folder() {
        for name in ["", ".", "..", "/etc", "a/b", "../x", "a/"] {
            assert!(safe_name(name).is_err(), "{name:?}");
        }
        assert!(safe_name("..a b").is_ok());
    }
}
