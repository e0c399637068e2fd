//! A sandbox's files.

mod content;
mod entries;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(content::read, content::write, entries::remove))
        .routes(routes!(entries::dir))
        .routes(routes!(entries::stat))
        .routes(routes!(entries::mkdir))
        .routes(routes!(entries::rename))
}
