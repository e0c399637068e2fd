//! The first key of a new state folder: shown once, and kept for the command line.

use std::{net::SocketAddr, path::Path};

use atoll_control::KeyText;

use crate::{
    secret::Secret,
    user_config::{self, Kept, UserConfig},
};

/// Prints the key on standard output and puts it into the user's config file, unless that is about another server.
pub(crate) fn announce(key: &KeyText, address: SocketAddr) {
    let url = url_of(address);
    println!(
        "The first API key, with the scope admin, shown this once:\n\n  {}\n",
        key.expose()
    );
    match user_config::path() {
        Some(path) => println!("{}", keep(&path, &url, key)),
        None => println!(
            "It was kept nowhere: neither XDG_CONFIG_HOME nor HOME is set. Set ATOLL_URL={url} and ATOLL_API_KEY."
        ),
    }
}

fn keep(path: &Path, url: &str, key: &KeyText) -> String {
    let shown = path.display();
    match UserConfig::keep_first_key(path, url, Secret::new(key.expose())) {
        Ok(Kept::Written) => format!("It is kept for `atoll` in {shown}."),
        Ok(Kept::Replaced(earlier)) => {
            format!(
                "It is kept for `atoll` in {shown}; the key that was there for this URL is in {}.",
                earlier.display()
            )
        }
        Ok(Kept::OtherServer(other)) => {
            format!(
                "{shown} is about {other} and was not changed. Set ATOLL_URL={url} and ATOLL_API_KEY to use this server."
            )
        }
        Err(error) => format!("It could not be kept in {shown}: {error}. Set ATOLL_URL={url} and ATOLL_API_KEY."),
    }
}

/// The URL for a client on this machine.
fn url_of(address: SocketAddr) -> String {
    let mut reachable = address;
    if address.ip().is_unspecified() {
        reachable.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("http://{reachable}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_every_address_is_reached_on_loopback() {
        let url = |text: &str| url_of(text.parse().unwrap());
        assert_eq!(url("0.0.0.0:8080"), "http://127.0.0.1:8080");
        assert_eq!(url("[::]:1"), "http://[::1]:1");
        assert_eq!(url("10.0.0.1:2"), "http://10.0.0.1:2");
    }
}
