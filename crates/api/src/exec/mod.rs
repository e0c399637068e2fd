//! Commands: collected, streamed, on a terminal, many on one socket.

mod collect;
mod interactive;
mod mux;
mod pty;
mod socket;
mod stream;
mod wire;

pub(crate) use collect::{Collected, append_line};
pub(crate) use stream::ChunkData;
pub(crate) use wire::{ExecReply, millis, output_limit};

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(collect::run))
        .routes(routes!(stream::stream))
        .routes(routes!(stream::attach))
        .routes(routes!(collect::list))
        .routes(routes!(collect::signal))
        .routes(routes!(pty::pty))
        .routes(routes!(pty::ssh))
        .routes(routes!(mux::mux))
        .routes(routes!(socket::socket))
}
