//! `template ls|build`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;

use super::{Context, sandbox::parse};
use crate::{
    client::{Client, escape},
    events::Events,
    failure::Failure,
    screen::human_bytes,
    wire::{Build, Template},
};

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// List templates
    Ls,
    /// Build a template anew and follow its log
    Build(BuildArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The template
    name: String,
}

impl TemplateCommand {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Ls => list(context).await,
            Self::Build(args) => args.run(context).await,
        }
    }
}

async fn list(context: &Context) -> Result<(), Failure> {
    let list: Value = context.client()?.get("/v1/templates").await?;
    if context.screen.json {
        return context.screen.json(&list);
    }
    let templates: Vec<Template> = parse(list)?;
    let rows: Vec<_> = templates
        .into_iter()
        .map(|template| {
            vec![
                template.name,
                if template.ready == Some(true) {
                    "ready"
                } else {
                    "not built"
                }
                .to_owned(),
                template.cpu.to_string(),
                format!("{} MiB", template.memory_mb),
                template.size_bytes.map(human_bytes).unwrap_or_default(),
                template.description.unwrap_or_default(),
            ]
        })
        .collect();
    context
        .screen
        .table(&["NAME", "STATE", "CPU", "MEMORY", "SIZE", "DESCRIPTION"], &rows)
}

impl BuildArgs {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let form = [("name", self.name.as_str()), ("replace", "true")];
        let started: Build = client
            .json(client.request(Method::POST, "/v1/templates/build").form(&form))
            .await?;
        follow(&client, context, &started.id).await?;
        let ended: Value = client
            .get(&format!("/v1/templates/builds/{}", escape(&started.id)))
            .await?;
        if context.screen.json {
            context.screen.json(&ended)?;
        }
        let build: Build = parse(ended)?;
        match build.status.as_str() {
            "done" => Ok(()),
            status => Err(Failure::local(format!(
                "the build of {} is {status}: {}",
                self.name,
                build.error.unwrap_or_else(|| "no reason is given".to_owned())
            ))),
        }
    }
}

/// Shows the log until the build ends.
async fn follow(client: &Client, context: &Context, build: &str) -> Result<(), Failure> {
    let path = format!("/v1/templates/builds/{}/logs?follow=1", escape(build));
    let response = client.send(client.request(Method::GET, &path)).await?;
    let mut events = Events::of(client, response);
    while let Some(event) = events.next().await? {
        if event.name == "done" {
            break;
        }
        context.screen.remark(&event.data);
    }
    Ok(())
}
