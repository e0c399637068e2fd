//! HTTP to the server: one client, errors turned into [`Failure`].

use std::{fmt::Display, time::Duration};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{connection::Connection, failure::Failure};

/// What may stand in a path segment or query value as it is (RFC 3986, unreserved).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How long a connection may take to open.
const CONNECT: Duration = Duration::from_secs(5);

/// A text for a path segment or a query value.
pub(crate) fn escape(text: &str) -> impl Display + '_ {
    utf8_percent_encode(text, ESCAPED)
}

/// The server, reached over HTTP.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
}

/// The error envelope (pandastack-v1 §1.3, and our code beside it).
#[derive(Debug, Default, Deserialize)]
struct Envelope {
    #[serde(default)]
    error: String,
    #[serde(default)]
    code: String,
    #[serde(default)]
    request_id: Option<String>,
}

impl Client {
    /// A client with the connection's key.
    ///
    /// # Errors
    /// When there is no key, or it can't be a header.
    pub(crate) fn new(connection: &Connection) -> Result<Self, Failure> {
        let Some(key) = &connection.key else {
            return Err(Failure::local("no API key is known").hint(
                "set ATOLL_API_KEY; `atoll serve` prints the first key once and keeps it in the config file of the user who started it",
            ));
        };
        let mut authorization = header::HeaderValue::from_str(&format!("Bearer {}", key.expose())).map_err(|_| {
            Failure::local(format!(
                "the API key from {} has characters that no key has",
                connection.key_from
            ))
        })?;
        authorization.set_sensitive(true);
        // Fails only when a provider was installed before, which then serves as well.
        drop(rustls::crypto::ring::default_provider().install_default());
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("atoll-cli/", env!("CARGO_PKG_VERSION")))
            .default_headers([(header::AUTHORIZATION, authorization)].into_iter().collect())
            .connect_timeout(CONNECT)
            .tcp_nodelay(true);
        if is_loopback(&connection.url) {
            builder = builder.no_proxy();
        }
        Ok(Self {
            http: builder.build().map_err(|error| Failure::local(error.to_string()))?,
            url: connection.url.clone(),
        })
    }

    /// The server's base URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A request to a path that starts with a slash.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    /// Sends; a refusal becomes a [`Failure`].
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let response = request.send().await.map_err(|error| self.broken(&error))?;
        if response.status().is_success() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let status = response.status();
        let text = response.text().await.unwrap_or_default();
        let envelope: Envelope = serde_json::from_str(&text).unwrap_or_default();
        let error = if envelope.error.is_empty() {
            format!("the server answered {status}")
        } else {
            envelope.error
        };
        Err(Failure::refused(
            status.as_u16(),
            envelope.code,
            error,
            envelope.request_id,
        ))
    }

    /// Sends and reads a JSON answer.
    pub(crate) async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Failure> {
        let response = self.send(request).await?;
        let bytes = response.bytes().await.map_err(|error| self.broken(&error))?;
        serde_json::from_slice(&bytes).map_err(|error| self.foreign(&error))
    }

    /// GET of a path, as JSON.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.json(self.request(Method::GET, path)).await
    }

    /// POST of a JSON body, JSON back.
    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Failure> {
        self.json(self.request(Method::POST, path).json(body)).await
    }

    /// DELETE of a path.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), Failure> {
        self.send(self.request(Method::DELETE, path)).await.map(drop)
    }

    /// What a broken connection is to a person.
    pub(crate) fn broken(&self, error: &reqwest::Error) -> Failure {
        Failure::unreachable(&self.url, error)
    }

    fn foreign(&self, error: &dyn Display) -> Failure {
        Failure::local(format!("{} answered something that is not Atoll's: {error}", self.url))
            .hint("check the URL; `atoll config` shows where it comes from")
    }
}

fn is_loopback(url: &str) -> bool {
    let host = reqwest::Url::parse(url)
        .ok()
        .and_then(|url| url.host_str().map(str::to_owned));
    host.is_some_and(|host| {
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_can_leave_its_place_in_a_url() {
        assert_eq!(escape("../a b?c=d&é").to_string(), "..%2Fa%20b%3Fc%3Dd%26%C3%A9");
    }

    #[test]
    fn loopback_is_told_from_everything_else() {
        for url in ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost"] {
            assert!(is_loopback(url), "{url}");
        }
        assert!(!is_loopback("http://10.0.0.1"));
    }
}
