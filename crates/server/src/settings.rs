//! What an operator may set, from four places: defaults, then the config file, then `ATOLL_*` variables, then flags.
//!
//! [`Overrides`] is the one list of settings. Its fields are the keys of the TOML file, the flags of `atoll serve` and the
//! variables of the environment at once, and their documentation is the help text.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use atoll_model::TemplateName;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// Where the config file is looked for when none is named.
pub const DEFAULT_CONFIG_FILE: &str = "/etc/atoll/atoll.toml";

/// Every setting, each of which may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overrides {
    /// Folder that holds everything the server keeps [default: /var/lib/atoll for root, else atoll in XDG_STATE_HOME]
    #[arg(long, env = "ATOLL_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Address and port to listen on [default: 127.0.0.1:8080]
    #[arg(long, env = "ATOLL_LISTEN", value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// Isolation engine [default: gvisor]
    #[arg(long, env = "ATOLL_ENGINE", value_name = "NAME")]
    pub engine: Option<String>,
    /// Templates that must be ready before /healthz says ok [default: code-interpreter,base]
    #[arg(long, env = "ATOLL_TEMPLATES", value_name = "NAME,...", value_delimiter = ',')]
    pub templates: Option<Vec<TemplateName>>,
    /// Folder with further template recipes, one folder each; they go before the built-in ones
    #[arg(long, env = "ATOLL_RECIPES_DIR", value_name = "DIR")]
    pub recipes_dir: Option<PathBuf>,
    /// Sandboxes that may live at once, of all workspaces [default: 500]
    #[arg(long, env = "ATOLL_MAX_SANDBOXES", value_name = "N")]
    pub max_sandboxes: Option<u32>,
    /// Memory of the machine, in MiB, that creates leave free [default: 1024]
    #[arg(long, env = "ATOLL_MEMORY_RESERVE_MB", value_name = "MIB")]
    pub memory_reserve_mb: Option<u64>,
    /// How many times its free disk space the machine may promise to sandboxes as their disk_mb [default: 20]
    #[arg(long, env = "ATOLL_DISK_OVERCOMMIT", value_name = "N")]
    pub disk_overcommit: Option<u32>,
    /// Seconds that open requests get to finish when the server is told to stop [default: 20]
    #[arg(long, env = "ATOLL_DRAIN_SECONDS", value_name = "SECONDS")]
    pub drain_seconds: Option<u64>,
    /// What is logged: a level, or tracing directives as in "info,atoll_control=debug" [default: info]
    #[arg(long, env = "ATOLL_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// How log lines look, on standard error [default: text]
    #[arg(long, env = "ATOLL_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The settings in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Everything that the server keeps.
    pub state_dir: PathBuf,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Which engine; see [`crate::engines`].
    pub engine: String,
    /// Templates to have ready before the server calls itself healthy.
    pub templates: Vec<TemplateName>,
    /// More recipes.
    pub recipes_dir: Option<PathBuf>,
    /// Most sandboxes at once.
    pub max_sandboxes: u32,
    /// Memory that creates leave free, in MiB.
    pub memory_reserve_mb: u64,
    /// How many times the free disk space may be promised.
    pub disk_overcommit: u32,
    /// Grace for open requests at shutdown, in seconds.
    pub drain_seconds: u64,
    /// Filter for the log.
    pub log: String,
    /// Its form.
    pub log_format: LogFormat,
}

/// Why settings are not usable.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read the config file {}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is not TOML, has an unknown key or a value of the wrong type.
    #[error("the config file {} is not usable:\n{detail}", path.display())]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// Line, column and what was expected there.
        detail: String,
    },
    /// A value is outside its range.
    #[error("{key} must be {allowed}")]
    OutOfRange {
        /// Which setting.
        key: &'static str,
        /// What it may be.
        allowed: &'static str,
    },
    /// There is no home for the state folder.
    #[error("no place for the state folder is known: set state_dir (--state-dir), or HOME")]
    NoStateDir,
}

impl Overrides {
    /// Reads a config file. Without a name the default one is taken, which may be missing.
    ///
    /// # Errors
    /// [`SettingsError::Unreadable`] and [`SettingsError::Invalid`], which names an unknown key.
    pub fn from_file(named: Option<&Path>) -> Result<Self, SettingsError> {
        let path = named.unwrap_or(Path::new(DEFAULT_CONFIG_FILE));
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(missing) if named.is_none() && missing.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => {
                return Err(SettingsError::Unreadable {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        toml::from_str(&text).map_err(|invalid| SettingsError::Invalid {
            path: path.to_owned(),
            detail: invalid.to_string(),
        })
    }

    /// These, and what they leave out from `weaker`.
    #[must_use]
    pub fn over(self, weaker: Self) -> Self {
        // Destructured, so that a setting that is added and not merged does not compile.
        let Self {
            state_dir,
            listen,
            engine,
            templates,
            recipes_dir,
            max_sandboxes,
            memory_reserve_mb,
            disk_overcommit,
            drain_seconds,
            log,
            log_format,
        } = self;
        Self {
            state_dir: state_dir.or(weaker.state_dir),
            listen: listen.or(weaker.listen),
            engine: engine.or(weaker.engine),
            templates: templates.or(weaker.templates),
            recipes_dir: recipes_dir.or(weaker.recipes_dir),
            max_sandboxes: max_sandboxes.or(weaker.max_sandboxes),
            memory_reserve_mb: memory_reserve_mb.or(weaker.memory_reserve_mb),
            disk_overcommit: disk_overcommit.or(weaker.disk_overcommit),
            drain_seconds: drain_seconds.or(weaker.drain_seconds),
            log: log.or(weaker.log),
            log_format: log_format.or(weaker.log_format),
        }
    }

    /// The settings in force: these over the defaults.
    ///
    /// # Errors
    /// [`SettingsError::OutOfRange`] and [`SettingsError::NoStateDir`].
    pub fn resolve(self, host: &HostFacts) -> Result<Settings, SettingsError> {
        let state_dir = match self.state_dir {
            Some(dir) => dir,
            None => host.default_state_dir().ok_or(SettingsError::NoStateDir)?,
        };
        let settings = Settings {
            state_dir: std::path::absolute(&state_dir).unwrap_or(state_dir),
            listen: self.listen.unwrap_or((Ipv4Addr::LOCALHOST, 8080).into()),
            engine: self.engine.unwrap_or_else(|| crate::engines::DEFAULT.to_owned()),
            templates: self.templates.unwrap_or_else(default_templates),
            recipes_dir: self.recipes_dir,
            max_sandboxes: self.max_sandboxes.unwrap_or(500),
            memory_reserve_mb: self.memory_reserve_mb.unwrap_or(1024),
            disk_overcommit: self.disk_overcommit.unwrap_or(20),
            drain_seconds: self.drain_seconds.unwrap_or(20),
            log: self.log.unwrap_or_else(|| "info".to_owned()),
            log_format: self.log_format.unwrap_or(LogFormat::Text),
        };
        settings.check()?;
        Ok(settings)
    }
}

impl Settings {
    fn check(&self) -> Result<(), SettingsError> {
        let ranges = [
            (
                "max_sandboxes",
                "1 to 100000",
                (1..=100_000).contains(&self.max_sandboxes),
            ),
            (
                "memory_reserve_mb",
                "at most 1048576",
                self.memory_reserve_mb <= 1 << 20,
            ),
            (
                "disk_overcommit",
                "1 to 1000",
                (1..=1000).contains(&self.disk_overcommit),
            ),
            ("drain_seconds", "at most 3600", self.drain_seconds <= 3600),
        ];
        match ranges.into_iter().find(|(_, _, fits)| !fits) {
            Some((key, allowed, _)) => Err(SettingsError::OutOfRange { key, allowed }),
            None => Ok(()),
        }
    }
}

fn default_templates() -> Vec<TemplateName> {
    ["code-interpreter", "base"]
        .into_iter()
        .filter_map(|name| name.parse().ok())
        .collect()
}

/// What the defaults depend on.
#[derive(Debug, Clone, Default)]
pub struct HostFacts {
    /// Whether the server runs as root.
    pub root: bool,
    /// XDG_STATE_HOME.
    pub state_home: Option<PathBuf>,
    /// HOME.
    pub home: Option<PathBuf>,
}

impl HostFacts {
    /// Looks at this machine and this process's environment.
    #[must_use]
    pub fn gather(root: bool) -> Self {
        let variable = |name| {
            std::env::var_os(name)
                .filter(|text| !text.is_empty())
                .map(PathBuf::from)
        };
        Self {
            root,
            state_home: variable("XDG_STATE_HOME"),
            home: variable("HOME"),
        }
    }

    fn default_state_dir(&self) -> Option<PathBuf> {
        if self.root {
            return Some(PathBuf::from("/var/lib/atoll"));
        }
        let state_home = self.state_home.clone();
        let base = state_home.or_else(|| self.home.as_ref().map(|home| home.join(".local/state")))?;
        Some(base.join("atoll"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostFacts {
        HostFacts {
            root: true,
            ..HostFacts::default()
        }
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("atoll.toml");
        fs::write(&file, "listen = \"127.0.0.1:1\"\nlissten = \"127.0.0.1:2\"\n").unwrap();
        let refused = Overrides::from_file(Some(&file)).unwrap_err().to_string();
        assert!(refused.contains("lissten") && refused.contains("line 2"), "{refused}");
    }

    #[test]
    fn a_named_file_that_is_missing_is_an_error_and_the_default_one_is_not() {
        assert!(Overrides::from_file(Some(Path::new("/nonexistent/atoll.toml"))).is_err());
    }

    #[test]
    fn the_stronger_source_wins_key_by_key() {
        let file: Overrides = toml::from_str("max_sandboxes = 7\nlog = \"debug\"").unwrap();
        let flags = Overrides {
            log: Some("warn".to_owned()),
            ..Overrides::default()
        };
        let settings = flags.over(file).resolve(&host()).unwrap();
        assert_eq!((settings.max_sandboxes, settings.log.as_str()), (7, "warn"));
    }

    #[test]
    fn defaults_are_what_the_help_says() {
        let settings = Overrides::default().resolve(&host()).unwrap();
        assert_eq!(settings.state_dir, Path::new("/var/lib/atoll"));
        assert_eq!(settings.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(settings.memory_reserve_mb, 1024);
        assert_eq!(settings.templates.len(), 2);
    }

    #[test]
    fn a_user_without_root_keeps_state_at_home() {
        let facts = HostFacts {
            home: Some("/home/x".into()),
            ..HostFacts::default()
        };
        let settings = Overrides::default().resolve(&facts).unwrap();
        assert_eq!(settings.state_dir, Path::new("/home/x/.local/state/atoll"));
        assert!(matches!(
            Overrides::default().resolve(&HostFacts::default()),
            Err(SettingsError::NoStateDir)
        ));
    }

    #[test]
    fn a_value_outside_its_range_is_refused_by_name() {
        let overrides = Overrides {
            max_sandboxes: Some(0),
            ..Overrides::default()
        };
        let refused = overrides.resolve(&host()).unwrap_err().to_string();
        assert!(refused.contains("max_sandboxes"), "{refused}");
    }
}
