//! Which server the CLI talks to, and with which key.

use std::path::PathBuf;

use atoll_server::{
    secret::Secret,
    user_config::{self, UserConfig},
};

use crate::failure::Failure;

/// Where a value came from, for `atoll config`.
pub(crate) type Origin = String;

/// The server and the key, before anything was sent.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Base URL without a slash at its end.
    pub(crate) url: String,
    pub(crate) url_from: Origin,
    /// The key, if any was found.
    pub(crate) key: Option<Secret>,
    pub(crate) key_from: Origin,
    /// The user's config file, whether or not it exists.
    pub(crate) file: Option<PathBuf>,
}

const DEFAULT_URL: &str = "http://127.0.0.1:8080";

impl Connection {
    /// Flag, then environment, then the user's config file, then this machine's default port.
    ///
    /// # Errors
    /// When the config file is there and cannot be used, or the URL is not one.
    pub(crate) fn resolve(url_flag: Option<String>) -> Result<Self, Failure> {
        let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let file = user_config::path();
        let config = match &file {
            Some(path) => UserConfig::read(path).map_err(|error| unusable(path, &error))?,
            None => UserConfig::default(),
        };
        let in_file = || {
            file.as_ref()
                .map_or_else(String::new, |path| path.display().to_string())
        };
        let url = url_flag
            .map(|url| (url, "--url".to_owned()))
            .or_else(|| variable("ATOLL_URL").map(|url| (url, "ATOLL_URL".to_owned())))
            .or_else(|| config.url.clone().map(|url| (url, in_file())))
            .unwrap_or_else(|| (DEFAULT_URL.to_owned(), "default".to_owned()));
        let key = variable("ATOLL_API_KEY")
            .map(|key| (Secret::new(key), "ATOLL_API_KEY".to_owned()))
            .or_else(|| config.api_key.clone().map(|key| (key, in_file())));
        let (key, key_from) = key.map_or((None, "none".to_owned()), |(key, from)| (Some(key), from));
        Ok(Self {
            url: checked(&url.0)?,
            url_from: url.1,
            key,
            key_from,
            file,
        })
    }
}

fn unusable(path: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::local(format!("the config file {} is not usable: {error}", path.display()))
        .hint("mend it or remove it; `{\"url\": \"...\", \"api_key\": \"...\"}` is all it needs")
}

fn checked(url: &str) -> Result<String, Failure> {
    let parsed = reqwest::Url::parse(url).ok();
    if parsed.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) {
        return Ok(url.trim_end_matches('/').trim_end_matches("/v1").to_owned());
    }
    Err(Failure::local(format!("\"{url}\" is not the URL of a server")).hint("it looks like http://127.0.0.1:8080"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_with_or_without_its_version_path() {
        for url in ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"] {
            assert_eq!(checked(url).unwrap(), "http://h:1");
        }
        for url in ["", "h:1", "ftp://h", "127.0.0.1:8080"] {
            assert!(checked(url).is_err(), "{url}");
        }
    }
}
