//! Code contexts, called sessions on the wire, and the cells that run in them.

mod once;
mod results;
mod run;
mod sessions;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(sessions::create, sessions::list))
        .routes(routes!(sessions::close))
        .routes(routes!(sessions::interrupt))
        .routes(routes!(sessions::restart))
        .routes(routes!(run::run))
        .routes(routes!(run::stream))
        .routes(routes!(once::once))
        .routes(routes!(once::languages))
}
