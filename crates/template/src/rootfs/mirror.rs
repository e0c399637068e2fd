//! The machine's own Debian mirror, from its apt sources in both of their formats (sources.list(5)).

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use crate::TemplateError;

/// Keys that Debian signs with; a source signed by another is not Debian's.
const DEBIAN_KEYS: &str = "debian-archive";

/// One archive that packages may come from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    uri: String,
    suite: String,
    components: Vec<String>,
    /// Files of keys; empty when apt's own are meant.
    signed_by: String,
}

/// Sources of `suite`, in the deb822 format, by the machine's mirror.
///
/// The machine may run another release: its mirror is then asked for the same archives (main, updates, security) of `suite`.
pub(super) fn of_machine(suite: &str) -> Result<String, TemplateError> {
    let mut sources = Vec::new();
    for path in source_files(Path::new("/etc/apt"))? {
        let text = std::fs::read_to_string(&path).map_err(TemplateError::host("read", &path))?;
        sources.extend(match path.extension() {
            Some(extension) if extension == "sources" => parse_deb822(&text),
            _ => text.lines().filter_map(parse_line).collect(),
        });
    }
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let found = of_suite(sources, suite, codename(&release));
    if !found.iter().any(|source| source.suite == suite) {
        return Err(TemplateError::NoMirror {
            suite: suite.to_owned(),
        });
    }
    Ok(found.iter().map(Source::to_deb822).collect())
}

fn source_files(folder: &Path) -> Result<Vec<PathBuf>, TemplateError> {
    let list = folder.join("sources.list");
    let mut files: Vec<PathBuf> = list.is_file().then_some(list).into_iter().collect();
    let parts = folder.join("sources.list.d");
    let mut names = crate::places::names_in(&parts)?;
    names.sort();
    let known = |name: &String| name.ends_with(".list") || name.ends_with(".sources");
    files.extend(names.into_iter().filter(known).map(|name| parts.join(name)));
    Ok(files)
}

/// A line as in `deb [signed-by=/usr/share/keyrings/x.gpg] http://mirror/debian bookworm main`.
fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?.strip_prefix([' ', '\t'])?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace().map(str::to_owned);
    let signed_by = options
        .split_whitespace()
        .find_map(|option| option.strip_prefix("signed-by="));
    Some(Source {
        uri: words.next()?,
        suite: words.next()?,
        components: words.collect(),
        signed_by: signed_by.unwrap_or_default().to_owned(),
    })
}

/// Paragraphs of `Field: value`; a line that begins with a blank goes on with the field before it.
fn parse_deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    for paragraph in text.split("\n\n") {
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in paragraph.lines().filter(|line| !line.starts_with('#')) {
            if line.starts_with([' ', '\t']) {
                if let Some((_, value)) = fields.last_mut() {
                    value.push('\n');
                    value.push_str(line.trim());
                }
            } else if let Some((name, value)) = line.split_once(':') {
                fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
        let field = |wanted: &str| {
            fields
                .iter()
                .find(|(name, _)| name == wanted)
                .map_or("", |(_, value)| value)
        };
        let words = |wanted: &str| field(wanted).split_whitespace();
        if field("enabled").eq_ignore_ascii_case("no") || !words("types").any(|kind| kind == "deb") {
            continue;
        }
        for uri in words("uris") {
            sources.extend(words("suites").map(|suite| Source {
                uri: uri.to_owned(),
                suite: suite.to_owned(),
                components: words("components").map(str::to_owned).collect(),
                signed_by: field("signed-by").to_owned(),
            }));
        }
    }
    sources
}

/// Debian's archives among `sources`, of `suite` instead of the machine's `codename`. Backports and whatever is not signed
/// with Debian's keys stay out.
fn of_suite(sources: Vec<Source>, suite: &str, codename: &str) -> Vec<Source> {
    let mut found: Vec<Source> = Vec::new();
    for mut source in sources {
        let is_debian = source.signed_by.is_empty() || source.signed_by.contains(DEBIAN_KEYS);
        let archive = [codename, suite].into_iter().find_map(|name| {
            let archive = source.suite.strip_prefix(name)?;
            ["", "-updates", "-security"]
                .contains(&archive)
                .then(|| archive.to_owned())
        });
        let Some(archive) = archive.filter(|_| is_debian && source.components.iter().any(|name| name == "main")) else {
            continue;
        };
        source.suite = format!("{suite}{archive}");
        source.components = vec!["main".to_owned()];
        source.uri = resolve(&source.uri);
        if !found
            .iter()
            .any(|other| other.suite == source.suite && other.uri == source.uri)
        {
            found.push(source);
        }
    }
    found
}

/// The first address of a `mirror+file:` list, which would not be found from inside the new root; any other as it is.
fn resolve(uri: &str) -> String {
    let listed = uri.strip_prefix("mirror+file:").and_then(|path| {
        let list = std::fs::read_to_string(path).ok()?;
        let first = list
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty() && !line.starts_with('#'))?;
        Some(first.split_whitespace().next()?.to_owned())
    });
    listed.unwrap_or_else(|| uri.to_owned())
}

fn codename(os_release: &str) -> &str {
    let line = os_release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    line.unwrap_or_default().trim_matches('"')
}

impl Source {
    fn to_deb822(&self) -> String {
        let mut text = format!("Types: deb\nURIs: {}\nSuites: {}\n", self.uri, self.suite);
        let _ = writeln!(text, "Components: {}", self.components.join(" "));
        if !self.signed_by.is_empty() {
            let _ = writeln!(text, "Signed-By: {}", self.signed_by.replace('\n', "\n "));
        }
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

    fn suites(sources: &[Source]) -> Vec<&str> {
        sources.iter().map(|source| source.suite.as_str()).collect()
    }

    #[test]
    fn the_one_line_format_is_read() {
        let line = format!("deb [arch=amd64 signed-by={KEY}] http://m/debian bookworm main contrib # note");
        let source = parse_line(&line).unwrap();
        assert_eq!(
            (source.uri.as_str(), source.suite.as_str()),
            ("http://m/debian", "bookworm")
        );
        assert_eq!(source.components, ["main", "contrib"]);
        assert_eq!(source.signed_by, KEY);
        for line in [
            "",
            "# deb http://m bookworm main",
            "deb-src http://m bookworm main",
            "deb",
            "deb http://m",
        ] {
            assert_eq!(parse_line(line), None, "{line}");
        }
    }

    #[test]
    fn the_paragraph_format_is_read() {
        let text = format!(
            "# a comment\nTypes: deb deb-src\nURIs: http://m/debian\nSuites: bookworm bookworm-updates\n# inside\n\
             Components: main\nSigned-By: {KEY}\n\nEnabled: no\nTypes: deb\nURIs: http://x\nSuites: y\n\n\
             Types: deb-src\nURIs: http://x\nSuites: y\n"
        );
        let sources = parse_deb822(&text);
        assert_eq!(suites(&sources), ["bookworm", "bookworm-updates"]);
        assert_eq!(sources[0].signed_by, KEY);
    }

    #[test]
    fn a_key_inside_a_paragraph_keeps_its_lines() {
        let text = "Types: deb\nURIs: http://m\nSuites: s\nComponents: main\nSigned-By:\n -----BEGIN-----\n .\n abc\n";
        let written = parse_deb822(text)[0].to_deb822();
        assert!(
            written.contains("Signed-By: \n -----BEGIN-----\n .\n abc\n"),
            "{written}"
        );
    }

    #[test]
    fn only_debian_is_taken_and_the_suite_is_the_recipes() {
        let lines = "deb http://m/debian trixie main non-free\ndeb http://m/debian trixie-updates main\n\
                     deb http://m/security trixie-security main\ndeb http://m/debian trixie-backports main\n\
                     deb [signed-by=/usr/share/keyrings/other.gpg] http://other trixie main\n\
                     deb http://other trixie stable\ndeb http://other trixie-pgdg main\ndeb http://m/debian trixie main\n";
        let sources: Vec<Source> = lines.lines().filter_map(parse_line).collect();
        let found = of_suite(sources, "bookworm", "trixie");
        assert_eq!(suites(&found), ["bookworm", "bookworm-updates", "bookworm-security"]);
        assert_eq!(found[0].components, ["main"]);
    }

    #[test]
    fn the_codename_is_read() {
        assert_eq!(codename("NAME=\"Debian\"\nVERSION_CODENAME=bookworm\n"), "bookworm");
        assert_eq!(codename(""), "");
    }

    #[test]
    fn a_list_of_mirrors_gives_its_first() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("debian.list");
        std::fs::write(&list, "# comment\n\nhttps://m/debian\tpriority:1\nhttps://n\n").unwrap();
        assert_eq!(resolve(&format!("mirror+file:{}", list.display())), "https://m/debian");
        assert_eq!(resolve("http://m"), "http://m");
    }
}
