//! `key create|ls|revoke`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::{Context, sandbox::parse};
use crate::{
    client::escape,
    failure::Failure,
    numbers,
    screen::human_age,
    wire::{Items, Key},
};

/// Days that a key may live at most.
const LONGEST_DAYS: u32 = 3650;

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key; its text is shown this once
    Create(CreateArgs),
    /// List keys
    Ls,
    /// Refuse a key from now on
    Revoke(RevokeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// What to call it
    name: String,
    /// What it may do
    #[arg(long, value_name = "SCOPE", default_value = "full", value_parser = ["read-only", "full", "admin"])]
    scope: String,
    /// Days after which it is refused [default: never]
    #[arg(long, value_name = "DAYS", value_parser = numbers::whole(1..=LONGEST_DAYS))]
    expires_in_days: Option<u32>,
    /// Print the key alone
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// The key's prefix, as `atoll key ls` shows it
    prefix: String,
}

impl KeyCommand {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Create(args) => args.run(context).await,
            Self::Ls => list(context).await,
            Self::Revoke(args) => {
                context
                    .client()?
                    .delete(&format!("/v1/me/tokens/{}", escape(&args.prefix)))
                    .await
            }
        }
    }
}

impl CreateArgs {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let mut body = Map::new();
        body.insert("label".to_owned(), json!(self.name));
        body.insert("scope".to_owned(), json!(self.scope));
        if let Some(days) = self.expires_in_days {
            body.insert("expires_in_days".to_owned(), json!(days));
        }
        let made: Value = context.client()?.post("/v1/me/tokens", &Value::Object(body)).await?;
        if context.screen.json && !self.quiet {
            return context.screen.json(&made);
        }
        let Some(token) = made["token"].as_str() else {
            return Err(Failure::local("the server made a key and did not show it"));
        };
        context.screen.line(token)?;
        if !self.quiet {
            context
                .screen
                .remark("this is the only time it is shown; hand it on as ATOLL_API_KEY");
        }
        Ok(())
    }
}

async fn list(context: &Context) -> Result<(), Failure> {
    let list: Value = context.client()?.get("/v1/me/tokens").await?;
    if context.screen.json {
        return context.screen.json(&list);
    }
    let keys: Items<Key> = parse(list)?;
    let now = OffsetDateTime::now_utc();
    let rows: Vec<_> = keys
        .items
        .into_iter()
        .map(|key| {
            let age = human_age((now - key.created_at).whole_seconds());
            vec![key.prefix, key.label, key.scope.unwrap_or_default(), age]
        })
        .collect();
    context.screen.table(&["PREFIX", "NAME", "SCOPE", "AGE"], &rows)
}
