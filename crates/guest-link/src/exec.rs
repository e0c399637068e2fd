//! Commands.

use atoll_model::ExecId;
use atoll_protocol::{
    event::{self, Kind, Record},
    route,
    types::{ExecEnd, ExecInfo, ExecResize, ExecSignal, ExecStart, ExecStarted, TerminalSize},
};
use bytes::{Bytes, BytesMut};
use http::Method;

use crate::{
    GuestError, GuestLink,
    body::{CancelOnDrop, Records, Upload},
    connection::request,
};

/// What comes from a command.
#[derive(Debug, Clone)]
pub enum ExecEvent {
    /// It wrote this to standard output, or to its terminal.
    Stdout(Bytes),
    /// It wrote this to standard error.
    Stderr(Bytes),
    /// It ended; nothing follows.
    End(ExecEnd),
}

/// A command that runs. Dropping it ends the command with its whole process tree, unless it was started with `detach`.
#[derive(Debug)]
pub struct ExecSession {
    started: ExecStarted,
    records: Records,
    /// Given away with [`take_stdin`](Self::take_stdin).
    stdin: Option<ExecStdin>,
    cancel: CancelOnDrop,
    ended: bool,
}

/// Standard input of a command. Dropping it closes a pipe, unless the command is detached; the command goes on.
#[derive(Debug)]
pub struct ExecStdin {
    link: GuestLink,
    upload: Upload,
}

impl ExecStdin {
    /// Writes; waits while the command does not read. That the command closed its input or ended is no error: the bytes
    /// are dropped then, as on a pipe whose writer ignores the signal.
    ///
    /// # Errors
    /// [`GuestError::Lost`].
    pub async fn write(&self, data: Bytes) -> Result<(), GuestError> {
        for start in (0..data.len()).step_by(event::MAX_BYTES) {
            let piece = data.slice(start..data.len().min(start + event::MAX_BYTES));
            let length = u32::try_from(piece.len()).unwrap_or(0);
            let mut record = BytesMut::with_capacity(event::HEADER + piece.len());
            record.extend_from_slice(&event::header(Kind::Stdin, length));
            record.extend_from_slice(&piece);
            let sent = self.upload.send(record.freeze()).await;
            self.tolerate(sent)?;
        }
        Ok(())
    }

    /// Says that the input ends here: closes the command's pipe, also of a detached command, or types the end of input on
    /// its terminal. The command goes on.
    ///
    /// # Errors
    /// [`GuestError::Lost`].
    pub async fn end(self) -> Result<(), GuestError> {
        let sent = self.upload.send(event::encode(Kind::StdinEnd, &[])).await;
        self.tolerate(sent)
    }

    /// The agent resets the request body of a command that has ended.
    fn tolerate(&self, sent: Result<(), h2::Error>) -> Result<(), GuestError> {
        match sent {
            Err(_) if self.link.is_lost() => Err(GuestError::Lost {
                detail: "while standard input was written".to_owned(),
            }),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl Drop for ExecStdin {
    fn drop(&mut self) {
        // An error says that the call is over, and with it the input.
        let _ = self.upload.end();
    }
}

impl ExecSession {
    /// Which command this is.
    #[must_use]
    pub fn started(&self) -> &ExecStarted {
        &self.started
    }

    /// Its standard input, once; it is of use only if the command was started with `stdin` or a terminal.
    pub fn take_stdin(&mut self) -> Option<ExecStdin> {
        self.stdin.take()
    }

    /// The next event; `None` after [`ExecEvent::End`]. Cancel-safe.
    ///
    /// # Errors
    /// [`GuestError::Lost`] or [`GuestError::Protocol`] when the stream broke: how the command ended is unknown then.
    pub async fn next(&mut self) -> Result<Option<ExecEvent>, GuestError> {
        if self.ended {
            return Ok(None);
        }
        let Record { kind, payload } = self.records.next().await?;
        let event = match kind {
            Kind::Stdout => ExecEvent::Stdout(payload),
            Kind::Stderr => ExecEvent::Stderr(payload),
            Kind::Json => {
                self.ended = true;
                self.cancel.disarm();
                ExecEvent::End(parse(&payload)?)
            }
            Kind::Stdin | Kind::StdinEnd => return Err(GuestError::protocol("input from the agent")),
        };
        Ok(Some(event))
    }
}

fn parse<T: serde::de::DeserializeOwned>(payload: &[u8]) -> Result<T, GuestError> {
    serde_json::from_slice(payload).map_err(|error| GuestError::protocol(error.to_string()))
}

impl GuestLink {
    /// Starts a command. Returns when it runs.
    ///
    /// # Errors
    /// [`GuestError::Refused`] when it cannot be started (no such program, user or folder; argument too long; too many).
    pub async fn exec(&self, start: &ExecStart) -> Result<ExecSession, GuestError> {
        let first = serde_json::to_vec(start).map_err(|error| GuestError::protocol(error.to_string()))?;
        let takes_input = start.stdin || start.terminal.is_some();
        self.follow(route::EXEC, &[], Some(first), takes_input).await
    }

    /// Follows a command that was started with `detach`: first what is retained of its output, then what comes.
    ///
    /// # Errors
    /// [`GuestError::Refused`] when there is no such command (any more).
    pub async fn exec_attach(&self, id: ExecId) -> Result<ExecSession, GuestError> {
        self.follow(route::EXEC_ATTACH, &[("id", &id.to_string())], None, true)
            .await
    }

    async fn follow(
        &self,
        path: &str,
        query: &[(&str, &str)],
        first: Option<Vec<u8>>,
        takes_input: bool,
    ) -> Result<ExecSession, GuestError> {
        let (response, upload) = self.start(request(Method::POST, path, query)?, false).await?;
        let upload = Upload::new(upload);
        let mut cancel = CancelOnDrop::new(&upload);
        let sent = match first {
            Some(first) => upload.send_first(event::encode(Kind::Json, &first)).await,
            None => Ok(()),
        };
        // A refusal may come before the body was taken, and says more than that the rest is not wanted.
        let response = self.answered(response).await.inspect_err(|_| cancel.disarm())?;
        sent.map_err(|error| self.broken(error))?;
        let mut records = Records::new(self.clone(), response.into_body());
        let started = records.next().await?;
        if started.kind != Kind::Json {
            return Err(GuestError::protocol("output before the start"));
        }
        let stdin = ExecStdin {
            link: self.clone(),
            upload,
        };
        Ok(ExecSession {
            started: parse(&started.payload)?,
            records,
            stdin: takes_input.then_some(stdin),
            cancel,
            ended: false,
        })
    }

    /// The commands that run, and those that ended lately.
    ///
    /// # Errors
    /// [`GuestError`].
    pub async fn exec_list(&self) -> Result<Vec<ExecInfo>, GuestError> {
        self.call(Method::GET, route::EXEC, &[], None::<&()>).await
    }

    /// Sends a signal to a command's process group.
    ///
    /// # Errors
    /// [`GuestError::Refused`] when there is no such command or signal.
    pub async fn exec_signal(&self, exec_id: ExecId, signal: i32) -> Result<(), GuestError> {
        let body = ExecSignal { exec_id, signal };
        self.call_for_nothing(Method::POST, route::EXEC_SIGNAL, &[], Some(&body))
            .await
    }

    /// Resizes a command's terminal.
    ///
    /// # Errors
    /// [`GuestError::Refused`] when there is no such command, it has no terminal, or the size is out of range.
    pub async fn exec_resize(&self, exec_id: ExecId, size: TerminalSize) -> Result<(), GuestError> {
        let body = ExecResize { exec_id, size };
        self.call_for_nothing(Method::POST, route::EXEC_RESIZE, &[], Some(&body))
            .await
    }
}
