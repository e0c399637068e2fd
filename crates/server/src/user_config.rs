//! The user's own config file: which server the CLI talks to, and with which key.
//!
//! `atoll/config.json` below XDG_CONFIG_HOME (or `~/.config`), `{"url": "...", "api_key": "..."}`, readable by its owner
//! alone. The server writes it once, with the first key, and never replaces the key of another server.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use atoll_host::private;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// The file's content. Other keys that it holds are kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct UserConfig {
    /// Base URL of the server, as in `http://127.0.0.1:8080`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Secret>,
    /// What we do not know.
    #[serde(flatten)]
    other: serde_json::Map<String, serde_json::Value>,
}

/// What came of offering a key to the user's config.
#[derive(Debug, PartialEq, Eq)]
pub enum Kept {
    /// The file holds it now.
    Written,
    /// The file holds it now. It held another key for the same URL, which this copy of the file keeps.
    Replaced(PathBuf),
    /// The file points at another server and was left alone.
    OtherServer(String),
}

/// Where the file lies, when XDG_CONFIG_HOME or HOME is set.
#[must_use]
pub fn path() -> Option<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|text| !text.is_empty())
            .map(PathBuf::from)
    };
    let base = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")))?;
    Some(base.join("atoll/config.json"))
}

impl UserConfig {
    /// Reads the file; empty when there is none.
    ///
    /// # Errors
    /// When it is there and cannot be read, or is not such JSON.
    pub fn read(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(failed) => Err(failed),
        }
    }

    /// Keeps a server's first key, unless the file is about another server.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn keep_first_key(path: &Path, url: &str, key: Secret) -> io::Result<Kept> {
        let mut config = Self::read(path)?;
        if let Some(other) = config.url.as_deref().filter(|present| *present != url) {
            return Ok(Kept::OtherServer(other.to_owned()));
        }
        let earlier = path.with_file_name("config.previous.json");
        let replaces = config.api_key.as_ref().is_some_and(|present| *present != key);
        if replaces {
            config.write(&earlier)?;
        }
        config.url = Some(url.to_owned());
        config.api_key = Some(key);
        config.write(path)?;
        Ok(if replaces {
            Kept::Replaced(earlier)
        } else {
            Kept::Written
        })
    }

    /// Puts the whole file in place at once, mode 0600, in a folder of mode 0700.
    fn write(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        private::folder(folder)?;
        let exposed = ExposedConfig {
            url: self.url.as_deref(),
            api_key: self.api_key.as_ref().map(Secret::expose),
            other: &self.other,
        };
        // A temporary file has mode 0600 from the start, and is removed when it is not kept.
        let mut draft = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut draft, &exposed)?;
        draft.write_all(b"\n")?;
        draft.as_file().sync_all()?;
        draft.persist(path)?;
        Ok(())
    }
}

/// The only form in which the key is written out.
#[derive(Serialize)]
struct ExposedConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_key: Option<&'a str>,
    #[serde(flatten)]
    other: &'a serde_json::Map<String, serde_json::Value>,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_first_key_is_readable_by_its_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config/atoll/config.json");
        let kept = UserConfig::keep_first_key(&path, "http://127.0.0.1:1", Secret::new("atl_1")).unwrap();
        assert_eq!(kept, Kept::Written);
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let read = UserConfig::read(&path).unwrap();
        assert_eq!(read.api_key.unwrap().expose(), "atl_1");
        assert_eq!(
            fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no draft is left"
        );
    }

    #[test]
    fn the_key_of_another_server_is_never_replaced() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("atoll/config.json");
        UserConfig::keep_first_key(&path, "http://127.0.0.1:1", Secret::new("atl_1")).unwrap();
        let kept = UserConfig::keep_first_key(&path, "http://127.0.0.1:2", Secret::new("atl_2")).unwrap();
        assert_eq!(kept, Kept::OtherServer("http://127.0.0.1:1".to_owned()));
        assert_eq!(UserConfig::read(&path).unwrap().api_key.unwrap().expose(), "atl_1");
    }

    #[test]
    fn a_key_for_the_same_url_is_kept_aside_before_it_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("atoll/config.json");
        let keep = |key: &str| UserConfig::keep_first_key(&path, "http://127.0.0.1:1", Secret::new(key)).unwrap();
        assert_eq!(keep("atl_1"), Kept::Written);
        let Kept::Replaced(earlier) = keep("atl_2") else {
            panic!("the earlier key is gone");
        };
        assert_eq!(UserConfig::read(&earlier).unwrap().api_key.unwrap().expose(), "atl_1");
        assert_eq!(mode(&earlier), 0o600);
    }

    #[test]
    fn keys_of_the_file_that_are_not_ours_survive() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("atoll/config.json");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, r#"{"theme": "dark"}"#).unwrap();
        UserConfig::keep_first_key(&path, "http://127.0.0.1:1", Secret::new("atl_1")).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("dark"));
    }

    #[test]
    fn a_key_does_not_print() {
        let config = UserConfig {
            api_key: Some(Secret::new("atl_1")),
            ..UserConfig::default()
        };
        assert!(!format!("{config:?}").contains("atl_1"));
        assert!(!serde_json::to_string(&config).unwrap().contains("atl_1"));
    }
}
