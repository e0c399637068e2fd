//! What of the machine's own settings a build needs to reach its mirrors and index.

use std::{env, ffi::OsString, time::Duration};

use atoll_host::{Finished, LineSource, Program};

use crate::TemplateError;

/// Proxies, in both spellings that programs look for.
const PROXIES: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
];
/// Settings of apt about reaching a mirror and trusting its clock.
const APT: &[&str] = &[
    "Acquire::http::",
    "Acquire::https::",
    "Acquire::Retries",
    "Acquire::ForceIPv",
    "Acquire::Check-",
    "Acquire::Max-ValidTime",
];
const APT_CONFIG: &str = "/usr/bin/apt-config";

/// The proxy variables that are set.
pub(super) fn proxies() -> Vec<(&'static str, OsString)> {
    let set = PROXIES.iter().filter_map(|name| Some((*name, env::var_os(name)?)));
    set.collect()
}

/// The machine's settings for apt, each as `Name "value"`.
pub(super) async fn apt_options() -> Result<Vec<String>, TemplateError> {
    let failed = TemplateError::program("reading the machine's apt settings");
    let mut options = Vec::new();
    let ran = async {
        let mut program = Program::new(APT_CONFIG)?;
        program.arg("dump");
        let dump = program.run(Duration::from_secs(30), |line| {
            if line.source == LineSource::Stdout {
                options.extend(apt_option(&line.text));
            }
        });
        dump.await.and_then(Finished::success)
    };
    ran.await.map_err(failed)?;
    Ok(options)
}

/// A line of `apt-config dump`, as in `Acquire::http::Proxy "http://...";`, if it is of use and not empty.
fn apt_option(line: &str) -> Option<String> {
    let option = line.strip_suffix(';')?;
    let (name, value) = option.split_once(' ')?;
    let wanted = APT.iter().any(|prefix| name.starts_with(prefix));
    (wanted && value != "\"\"").then(|| option.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_about_the_mirror_are_taken() {
        assert_eq!(
            apt_option("Acquire::http::Proxy \"http://127.0.0.1:3142\";").as_deref(),
            Some("Acquire::http::Proxy \"http://127.0.0.1:3142\"")
        );
        for line in [
            "Acquire::http \"\";",
            "Acquire::http::Proxy \"\";",
            "Acquire::Languages:: \"none\";",
            "APT::Architecture \"amd64\";",
            "nonsense",
        ] {
            assert_eq!(apt_option(line), None, "{line}");
        }
    }
}
