//! `ls`, `get`, `create`, `rm`.

use atoll_model::limits::MAX_TTL_SECONDS;
use clap::Args;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{Context, SandboxArgs};
use crate::{
    client::{Client, escape},
    failure::Failure,
    numbers,
    pairs::{self, Pair},
    screen::human_age,
    wire::Sandbox,
};

/// Deletes that run at once.
const PARALLEL: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Only sandboxes with this label (repeatable)
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = pairs::pair)]
    label: Vec<Pair>,
    /// Only the ids, one a line
    #[arg(short, long)]
    quiet: bool,
}

impl LsArgs {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let filters: Vec<_> = self
            .label
            .iter()
            .map(|(key, value)| format!("label.{}={}", escape(key), escape(value)))
            .collect();
        let list: Value = client.get(&format!("/v1/sandboxes?{}", filters.join("&"))).await?;
        if context.screen.json {
            return context.screen.json(&list);
        }
        let sandboxes: Vec<Sandbox> = parse(list)?;
        if self.quiet {
            return sandboxes
                .iter()
                .try_for_each(|sandbox| context.screen.line(&sandbox.id));
        }
        let rows: Vec<_> = sandboxes.iter().map(row).collect();
        context
            .screen
            .table(&["ID", "TEMPLATE", "STATUS", "CPU", "MEMORY", "AGE", "LABELS"], &rows)
    }
}

fn row(sandbox: &Sandbox) -> Vec<String> {
    let age = OffsetDateTime::now_utc() - sandbox.created_at;
    let labels: Vec<_> = sandbox
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    vec![
        sandbox.id.clone(),
        sandbox.template.clone(),
        sandbox.status.clone(),
        sandbox.cpu.to_string(),
        format!("{} MiB", sandbox.memory_mb),
        human_age(age.whole_seconds()),
        labels.join(","),
    ]
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The sandbox
    #[arg(value_name = "SANDBOX")]
    id: String,
}

impl GetArgs {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let found: Value = context
            .client()?
            .get(&format!("/v1/sandboxes/{}", escape(&self.id)))
            .await?;
        context.screen.json(&found)
    }
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    sandbox: SandboxArgs,
    /// Idle seconds after which it is deleted; 0 is never [default: the server's, 3600]
    #[arg(long, value_name = "SECONDS", value_parser = numbers::whole(0..=MAX_TTL_SECONDS))]
    ttl: Option<u64>,
    /// Never delete it for being idle
    #[arg(long)]
    persistent: bool,
    /// Creates with the same key give the same sandbox
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

impl CreateArgs {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let mut body = self.sandbox.body();
        if let Some(ttl) = self.ttl {
            body.insert("ttl_seconds".to_owned(), json!(ttl));
        }
        if self.persistent {
            body.insert("persistent".to_owned(), json!(true));
        }
        if let Some(key) = self.idempotency_key {
            body.insert("idempotency_key".to_owned(), json!(key));
        }
        let created: Value = create(&client, context, Value::Object(body)).await?;
        if context.screen.json {
            return context.screen.json(&created);
        }
        context.screen.line(&parse::<Sandbox>(created)?.id)
    }
}

/// Creates a sandbox while a sign turns.
pub(super) async fn create(client: &Client, context: &Context, body: Value) -> Result<Value, Failure> {
    let turning = context.screen.spinner("creating a sandbox");
    let created = client.post("/v1/sandboxes", &body).await;
    turning.finish_and_clear();
    created
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The sandboxes
    #[arg(value_name = "SANDBOX", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// Every sandbox of the workspace
    #[arg(long)]
    all: bool,
}

impl RmArgs {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let ids = if self.all {
            let list: Vec<Sandbox> = client.get("/v1/sandboxes").await?;
            list.into_iter().map(|sandbox| sandbox.id).collect()
        } else {
            self.ids
        };
        let mut results = stream::iter(ids)
            .map(|id| async {
                let result = remove(&client, &id).await;
                (id, result)
            })
            .buffered(PARALLEL);
        let mut removed = Vec::new();
        let mut failed = None;
        while let Some((id, result)) = results.next().await {
            match result {
                Ok(()) => {
                    if !context.screen.json {
                        context.screen.line(&id)?;
                    }
                    removed.push(id);
                }
                Err(failure) => {
                    if let Some(earlier) = failed.replace(failure) {
                        earlier.report(context.screen.json);
                    }
                }
            }
        }
        if context.screen.json {
            context.screen.json(&json!({ "removed": removed }))?;
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Deletes one sandbox and waits until nothing is left of it.
pub(super) async fn remove(client: &Client, id: &str) -> Result<(), Failure> {
    client.delete(&format!("/v1/sandboxes/{}", escape(id))).await
}

/// The part of an answer that is shown.
pub(super) fn parse<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, Failure> {
    serde_json::from_value(value)
        .map_err(|error| Failure::local(format!("the server's answer is not what was expected: {error}")))
}
