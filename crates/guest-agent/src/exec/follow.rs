//! A caller at a command: its input in, its output out.

use std::rc::Rc;

use atoll_protocol::{
    event::{self, Kind},
    types::{ExecStarted, GuestCode},
};

use super::{Exec, input::Input};
use crate::{
    refusal::refuse,
    server::{Body, Gone, Reply, send, send_hub},
};

/// Who follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Who started it. Leaving cancels the command unless it is detached.
    Caller,
    /// Who attached later.
    Visitor,
}

/// Cancels the command when its caller leaves.
struct CancelOnDrop(Rc<Exec>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.0.has_ended() {
            self.0.cancel();
        }
    }
}

/// Serves one caller until the command's end was told, or the caller is gone.
pub(crate) async fn follow(exec: Rc<Exec>, body: Body, reply: Reply, role: Role) -> Result<(), Gone> {
    let _cancel = (role == Role::Caller && !exec.detached).then(|| CancelOnDrop(Rc::clone(&exec)));
    let started = ExecStarted {
        exec_id: exec.id,
        pid: exec.pid.as_raw(),
    };
    let started = match serde_json::to_vec(&started) {
        Ok(json) => event::encode(Kind::Json, &json),
        Err(error) => return reply.refuse(&refuse(GuestCode::Internal, error.to_string())).await,
    };
    let mut stream = reply.stream(&[])?;
    send(&mut stream, started).await?;
    tokio::select! {
        sent = send_hub(&mut stream, &exec.hub) => sent,
        gone = feed(&exec, body) => Err(gone),
    }
}

/// Feeds standard input for as long as the call lasts.
async fn feed(exec: &Exec, mut body: Body) -> Gone {
    loop {
        match body.record().await {
            Ok(Some(record)) if record.kind == Kind::Stdin => exec.input.write(&record.payload).await,
            Ok(Some(_)) => exec.input.end().await,
            Ok(None) => {
                // Who follows a detached command may come back with more; a terminal goes on without typing.
                if !exec.detached && matches!(exec.input, Input::Pipe(_)) {
                    exec.input.close();
                }
                return std::future::pending().await;
            }
            Err(gone) => return gone,
        }
    }
}
