//! The API on real use cases and a real store, and an engine that has no room: what every answer looks like that
//! needs no machine.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use atoll_api::ApiConfig;
use atoll_control::{Control, ControlConfig, ControlTasks};
use atoll_engine::{Capabilities, Engine, EngineError, Machine, MachinePlan, Usage};
use atoll_model::{Isolation, MachineId};
use atoll_store::Store;
use atoll_template::{GuestImage, Templates, TemplatesConfig};
use axum::{Router, body::Body};
use http::{Method, Request, Response, StatusCode, header};
use serde_json::Value;
use tempfile::TempDir;
use tower::ServiceExt;

/// An API, and an admin's key for it.
pub(crate) struct Api {
    router: Router,
    key: String,
    _state: TempDir,
    _tasks: ControlTasks,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {:?}", self.text))
    }

    /// The envelope's field of that name.
    pub(crate) fn said(&self, field: &str) -> String {
        self.json()[field].as_str().unwrap_or_default().to_owned()
    }
}

impl Api {
    pub(crate) async fn start() -> Self {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(&state.path().join("atoll.db")).await.unwrap();
        let templates = Templates::open(TemplatesConfig {
            state_dir: state.path().to_owned(),
            built_in: &[],
            recipes_dir: Some(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../templates")),
            guest: GuestImage::new(Vec::new()),
        })
        .unwrap();
        let config = ControlConfig {
            state_dir: state.path().to_owned(),
            ..ControlConfig::default()
        };
        let started = Control::start(config, store, Arc::new(NoRoom::new()), templates)
            .await
            .unwrap();
        Self {
            router: atoll_api::router(started.control, ApiConfig::default()),
            key: started.first_key.unwrap().expose().to_owned(),
            _state: state,
            _tasks: started.tasks,
        }
    }

    /// The admin's key.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Sends a request just as it is.
    pub(crate) async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// Sends a request with the admin's key.
    pub(crate) async fn call(&self, method: Method, path: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.key))
            .body(body.into())
            .unwrap();
        answer(self.send(request).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, Body::empty()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.call(Method::POST, path, body.to_owned()).await
    }
}

/// Reads a response to its end.
pub(crate) async fn answer(response: Response<Body>) -> Answer {
    let (parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, 1 << 24).await.unwrap();
    Answer {
        status: parts.status,
        headers: parts.headers,
        text: String::from_utf8(bytes.to_vec()).unwrap(),
    }
}

/// An engine that can start nothing.
#[derive(Debug)]
struct NoRoom(Capabilities);

impl NoRoom {
    fn new() -> Self {
        Self(Capabilities {
            isolation: Isolation::Kernel,
            version: "none 1".to_owned(),
            snapshot_running: false,
            memory_snapshot: false,
            pause: false,
            disk_limit: false,
            warnings: Vec::new(),
        })
    }
}

fn no_room<T>() -> Result<T, EngineError> {
    Err(EngineError::NoRoom("this engine starts nothing".to_owned()))
}

#[async_trait]
impl Engine for NoRoom {
    fn name(&self) -> &'static str {
        "none"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.0
    }

    async fn probe(&self) -> Result<Capabilities, EngineError> {
        Ok(self.0.clone())
    }

    async fn boot(&self, _: MachinePlan) -> Result<Machine, EngineError> {
        no_room()
    }

    async fn snapshot(&self, _: &MachineId, _: PathBuf) -> Result<(), EngineError> {
        no_room()
    }

    async fn restore(&self, _: MachinePlan, _: PathBuf) -> Result<Machine, EngineError> {
        no_room()
    }

    async fn stop(&self, _: &MachineId) -> Result<(), EngineError> {
        Ok(())
    }

    async fn adopt(&self, _: &MachineId) -> Result<Option<Machine>, EngineError> {
        Ok(None)
    }

    async fn inventory(&self) -> Result<Vec<MachineId>, EngineError> {
        Ok(Vec::new())
    }

    async fn usage(&self, machine: &MachineId) -> Result<Usage, EngineError> {
        Err(EngineError::NoMachine(machine.clone()))
    }
}
