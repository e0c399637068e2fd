//! `version`: of this program, and of the server.

use serde_json::{Value, json};

use super::Context;
use crate::failure::Failure;

pub(crate) async fn run(context: &Context) -> Result<(), Failure> {
    let own = env!("CARGO_PKG_VERSION");
    let server: Result<Value, Failure> = match context.client() {
        Ok(client) => client.get("/v1/version").await,
        Err(failure) => Err(failure),
    };
    if context.screen.json {
        return context.screen.json(&json!({ "client": own, "server": server.ok() }));
    }
    context.screen.line(&format!("atoll {own}"))?;
    match server {
        Ok(server) => context
            .screen
            .line(&format!("server {}", server["version"].as_str().unwrap_or("unknown"))),
        Err(_) => context.screen.line("server not reachable"),
    }
}
