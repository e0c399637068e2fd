//! One file a command, or a family of them. Each has its arguments and the function that carries it out.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod cp;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod key;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod serve;
pub(crate) mod template;
pub(crate) mod version;

use std::collections::BTreeMap;

use atoll_model::limits;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::{
    client::Client,
    connection::Connection,
    failure::Failure,
    numbers,
    pairs::{self, Pair},
    screen::Screen,
};

/// What every command has.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) screen: Screen,
    /// `--url`.
    pub(crate) url: Option<String>,
}

impl Context {
    /// A client of the server that this run is about.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Client::new(&Connection::resolve(self.url.clone())?)
    }
}

/// What a new sandbox may be told; shared by `run` and `create`.
#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// Template to make it from; `atoll template ls` shows them
    #[arg(short, long, value_name = "NAME", default_value = "code-interpreter")]
    template: String,
    /// Set a variable in the sandbox; KEY alone takes the value from here (repeatable)
    #[arg(short, long = "env", value_name = "KEY[=VALUE]", value_parser = pairs::environment_pair)]
    env: Vec<Pair>,
    /// Cores [default: the template's]
    #[arg(long, value_name = "N", value_parser = numbers::whole(limits::CPU_RANGE))]
    cpu: Option<u32>,
    /// Memory in MiB [default: the template's]
    #[arg(short, long, value_name = "MIB", value_parser = numbers::whole(limits::MEMORY_MB_RANGE))]
    memory: Option<u64>,
    /// Disk in MiB [default: the template's]
    #[arg(long, value_name = "MIB", value_parser = numbers::whole(limits::DISK_MB_RANGE))]
    disk: Option<u64>,
    /// Least isolation to accept; refused when this host has none as strong
    #[arg(long, value_name = "LEVEL", value_parser = ["kernel", "vm"])]
    isolation: Option<String>,
    /// Label to find it by later (repeatable)
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = pairs::pair)]
    label: Vec<Pair>,
}

impl SandboxArgs {
    /// The body of the create.
    fn body(self) -> Map<String, Value> {
        let mut body = Map::new();
        body.insert("template".to_owned(), json!(self.template));
        let mut set = |key: &str, value: Value| {
            if !value.is_null() && value.as_object().is_none_or(|object| !object.is_empty()) {
                body.insert(key.to_owned(), value);
            }
        };
        let strings = |pairs: Vec<Pair>| -> BTreeMap<String, String> { pairs::collect(pairs) };
        set("env", json!(strings(self.env)));
        set("labels", json!(strings(self.label)));
        set("cpu", json!(self.cpu));
        set("memory_mb", json!(self.memory));
        set("disk_mb", json!(self.disk));
        set("isolation", json!(self.isolation));
        body
    }
}
