//! Templates and their builds.

mod build;
mod catalog;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(catalog::list))
        .routes(routes!(build::start))
        .routes(routes!(build::list))
        .routes(routes!(build::get))
        .routes(routes!(build::logs))
        .routes(routes!(catalog::get, catalog::delete))
}
