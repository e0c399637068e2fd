//! The machine's own pip settings, for the build only: its configuration files and `PIP_*` variables.

use std::{
    collections::BTreeMap,
    env, io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use crate::TemplateError;

/// Options about where packages come from. All others of the machine are about something else than this build.
const OPTIONS: &[&str] = &[
    "cert",
    "client-cert",
    "extra-index-url",
    "find-links",
    "index-url",
    "no-index",
    "prefer-binary",
    "proxy",
    "retries",
    "timeout",
    "trusted-host",
];
/// Those whose values are files of the machine.
const FILES: &[&str] = &["cert", "client-cert"];

/// Options by name; some have several values.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    options: BTreeMap<String, Vec<String>>,
}

impl Settings {
    /// Reads what pip itself would read, in its order: later ones win, the environment last.
    pub(super) fn of_machine() -> Result<Self, TemplateError> {
        let mut settings = Self::default();
        for path in config_files() {
            match std::fs::read_to_string(&path) {
                Ok(text) => settings.add_file(&text),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(TemplateError::host("read", path)(error)),
            }
        }
        for (name, value) in env::vars() {
            if let Some(name) = name.strip_prefix("PIP_") {
                settings.add(&name.to_lowercase().replace('_', "-"), value.split_whitespace());
            }
        }
        Ok(settings)
    }

    /// A configuration file: sections of `name = value`; lines that begin with a blank are further values.
    fn add_file(&mut self, text: &str) {
        let (mut section, mut name) = (String::new(), String::new());
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in text.lines() {
            let comment = line.trim_start().starts_with(['#', ';']);
            if comment || line.trim().is_empty() {
                continue;
            }
            if let Some(header) = line.trim().strip_prefix('[') {
                header.trim_end_matches(']').trim().clone_into(&mut section);
                name.clear();
            } else if !["global", "install"].contains(&section.as_str()) {
                // Options of other commands.
            } else if line.starts_with([' ', '\t']) {
                let more = line.split_whitespace().map(str::to_owned);
                found.entry(name.clone()).or_default().extend(more);
            } else if let Some((key, value)) = line.split_once(['=', ':']) {
                name = key.trim().to_lowercase().replace('_', "-");
                found.insert(name.clone(), value.split_whitespace().map(str::to_owned).collect());
            }
        }
        for (name, values) in &found {
            self.add(name, values.iter().map(String::as_str));
        }
    }

    fn add<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a str>) {
        let name = if name == "default-timeout" { "timeout" } else { name };
        if OPTIONS.contains(&name) {
            self.options
                .insert(name.to_owned(), values.map(str::to_owned).collect());
        }
    }

    /// Writes `pip.conf` into `folder`, and copies of the files and folders that it speaks of. `folder` is what the build
    /// shares with the new system; nobody but root can read the file, which may hold a password.
    pub(super) fn write(&self, folder: &Path) -> Result<(), TemplateError> {
        let mut text = "[global]\n".to_owned();
        for (name, values) in &self.options {
            let mut seen = Vec::new();
            for (number, value) in values.iter().enumerate() {
                seen.extend(self.made_visible(name, value, &format!("{name}-{number}"), folder)?);
            }
            if !seen.is_empty() {
                text.push_str(&format!("{name} = {}\n", seen.join("\n    ")));
            }
        }
        let path = folder.join("pip.conf");
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()))
            .map_err(TemplateError::host("write", path))
    }

    /// A value as programs inside may use it; `None` for a folder of wheels that holds none.
    fn made_visible(
        &self,
        option: &str,
        value: &str,
        copy: &str,
        folder: &Path,
    ) -> Result<Option<String>, TemplateError> {
        let inside = |name: &str| Some(format!("/run/atoll-build/pip/{name}"));
        let source = Path::new(value.strip_prefix("file://").unwrap_or(value));
        if FILES.contains(&option) {
            let copied = std::fs::copy(source, folder.join(copy));
            copied.map_err(TemplateError::host("copy the certificates at", source))?;
            return Ok(inside(copy));
        }
        if option != "find-links" || !source.is_absolute() {
            return Ok(Some(value.to_owned()));
        }
        let wheels = crate::places::names_in(source)?;
        if wheels.is_empty() {
            return Ok(None);
        }
        let target = folder.join(copy);
        std::fs::create_dir_all(&target).map_err(TemplateError::host("make", &target))?;
        for wheel in wheels {
            let copied = std::fs::copy(source.join(&wheel), target.join(&wheel));
            copied.map_err(TemplateError::host("copy", source.join(wheel)))?;
        }
        Ok(inside(copy))
    }
}

/// The files that pip reads: of the machine, of its user, and the one that a variable names.
fn config_files() -> Vec<PathBuf> {
    let named = env::var_os("PIP_CONFIG_FILE").map(PathBuf::from);
    let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let config = env::var_os("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
    let mut files = vec![PathBuf::from("/etc/xdg/pip/pip.conf"), PathBuf::from("/etc/pip.conf")];
    files.extend([home.join(".pip/pip.conf"), config.join("pip/pip.conf")]);
    files.extend(named);
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Settings {
        let mut settings = Settings::default();
        settings.add_file(text);
        settings
    }

    #[test]
    fn only_options_about_the_index_are_taken() {
        let settings = read(
            "[global]\nindex-url = https://u:p@index/simple\n# comment\nquiet = 1\nextra_index_url = https://a\n    https://b\n\
             [list]\nindex-url = https://wrong\n[install]\ndefault-timeout: 60\n",
        );
        let get = |name: &str| settings.options.get(name).map(|values| values.join(" "));
        assert_eq!(get("index-url").as_deref(), Some("https://u:p@index/simple"));
        assert_eq!(get("extra-index-url").as_deref(), Some("https://a https://b"));
        assert_eq!(get("timeout").as_deref(), Some("60"));
        assert_eq!(settings.options.len(), 3);
    }

    #[test]
    fn files_of_the_machine_are_copied_for_the_build() {
        let folder = tempfile::tempdir().unwrap();
        let (wheels, empty, shared) = (
            folder.path().join("wheels"),
            folder.path().join("empty"),
            folder.path().join("s"),
        );
        for made in [&wheels, &empty, &shared] {
            std::fs::create_dir(made).unwrap();
        }
        std::fs::write(wheels.join("a.whl"), "w").unwrap();
        let certificates = folder.path().join("ca.pem");
        std::fs::write(&certificates, "c").unwrap();
        let settings = read(&format!(
            "[global]\ncert = {}\nfind-links = {} {}\n",
            certificates.display(),
            wheels.display(),
            empty.display()
        ));
        settings.write(&shared).unwrap();
        let written = std::fs::read_to_string(shared.join("pip.conf")).unwrap();
        assert_eq!(
            written,
            "[global]\ncert = /run/atoll-build/pip/cert-0\nfind-links = /run/atoll-build/pip/find-links-0\n"
        );
        assert_eq!(std::fs::read_to_string(shared.join("cert-0")).unwrap(), "c");
        assert_eq!(std::fs::read_to_string(shared.join("find-links-0/a.whl")).unwrap(), "w");
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(
            shared.join("pip.conf").metadata().unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}
