//! Contexts and their cells.

use atoll_model::ContextId;
use atoll_protocol::{
    event::{self, Kind, Record},
    route,
    types::{CellEvent, CellRun, ContextCreate, ContextInfo},
};
use bytes::Bytes;
use http::Method;

use crate::{
    GuestError, GuestLink,
    body::{CancelOnDrop, Records, Upload},
    connection::request,
};

/// What comes from a cell.
#[derive(Debug, Clone)]
pub enum CellOutput {
    /// Written to standard output, by the interpreter or a process it started.
    Stdout(Bytes),
    /// Written to standard error.
    Stderr(Bytes),
    /// A result, or the cell's end; nothing follows the end.
    Event(CellEvent),
}

/// A cell that is queued or runs. Dropping it cancels the cell: taken from the queue, or interrupted.
#[derive(Debug)]
pub struct CellSession {
    records: Records,
    cancel: CancelOnDrop,
    ended: bool,
}

impl CellSession {
    /// What comes next; `None` after [`CellEvent::Done`]. Cancel-safe.
    ///
    /// # Errors
    /// [`GuestError::Lost`] or [`GuestError::Protocol`] when the stream broke: what the cell did is unknown then.
    pub async fn next(&mut self) -> Result<Option<CellOutput>, GuestError> {
        if self.ended {
            return Ok(None);
        }
        let Record { kind, payload } = self.records.next().await?;
        Ok(Some(match kind {
            Kind::Stdout => CellOutput::Stdout(payload),
            Kind::Stderr => CellOutput::Stderr(payload),
            Kind::Json => {
                let event = serde_json::from_slice(&payload);
                let event: CellEvent = event.map_err(|error| GuestError::protocol(error.to_string()))?;
                if matches!(event, CellEvent::Done(_)) {
                    self.ended = true;
                    self.cancel.disarm();
                }
                CellOutput::Event(event)
            }
            Kind::Stdin | Kind::StdinEnd => return Err(GuestError::protocol("input from the agent")),
        }))
    }
}

impl GuestLink {
    /// Makes a context.
    ///
    /// # Errors
    /// [`GuestError::Refused`] for a language that was not warmed, a folder that is not there, or too many contexts.
    pub async fn context_create(&self, create: &ContextCreate) -> Result<ContextInfo, GuestError> {
        self.call(Method::POST, route::CONTEXTS, &[], Some(create)).await
    }

    /// The contexts.
    ///
    /// # Errors
    /// [`GuestError`].
    pub async fn context_list(&self) -> Result<Vec<ContextInfo>, GuestError> {
        self.call(Method::GET, route::CONTEXTS, &[], None::<&()>).await
    }

    /// Ends a context with everything it started; its cells end as cancelled.
    ///
    /// # Errors
    /// [`GuestError::Refused`] when there is no such context.
    pub async fn context_close(&self, id: ContextId) -> Result<(), GuestError> {
        self.context_call(Method::DELETE, route::CONTEXTS, id).await
    }

    /// Interrupts the cell that runs; nothing when none does.
    ///
    /// # Errors
    /// [`GuestError::Refused`] when there is no such context.
    pub async fn context_interrupt(&self, id: ContextId) -> Result<(), GuestError> {
        self.context_call(Method::POST, route::CONTEXT_INTERRUPT, id).await
    }

    /// A fresh interpreter under the same id; its state is lost, cells that wait then run in the new one.
    ///
    /// # Errors
    /// [`GuestError::Refused`] when there is no such context.
    pub async fn context_restart(&self, id: ContextId) -> Result<ContextInfo, GuestError> {
        let id = id.to_string();
        self.call(Method::POST, route::CONTEXT_RESTART, &[("id", &id)], None::<&()>)
            .await
    }

    async fn context_call(&self, method: Method, path: &str, id: ContextId) -> Result<(), GuestError> {
        self.call_for_nothing(method, path, &[("id", &id.to_string())], None::<&()>)
            .await
    }

    /// Queues a cell. Returns when the agent has it; cells of one context run in the order in which this was called.
    ///
    /// # Errors
    /// [`GuestError::Refused`] when there is no such context or its queue is full.
    pub async fn context_run(&self, id: ContextId, run: &CellRun) -> Result<CellSession, GuestError> {
        let body = serde_json::to_vec(run).map_err(|error| GuestError::protocol(error.to_string()))?;
        let request = request(Method::POST, route::CONTEXT_RUN, &[("id", &id.to_string())])?;
        let (response, upload) = self.start(request, false).await?;
        let upload = Upload::new(upload);
        let mut cancel = CancelOnDrop::new(&upload);
        let sent = upload.send_first(event::encode(Kind::Json, &body)).await;
        let sent = sent.and_then(|()| upload.end());
        // A refusal may come before the body was taken, and says more than that the rest is not wanted.
        let response = self.answered(response).await.inspect_err(|_| cancel.disarm())?;
        sent.map_err(|error| self.broken(error))?;
        Ok(CellSession {
            records: Records::new(self.clone(), response.into_body()),
            cancel,
            ended: false,
        })
    }
}
