//! Code contexts, called sessions on the wire, and the cells that run in them.

mod once;
mod results;
mod run;
mod sessions;

use atoll_model::{ErrorCode, Refusal};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;

/// A context that is not there is a session that is not found, in the words of the contract (pandastack-v1 §2.10).
fn of_session(refusal: Refusal) -> Refusal {
    let about_sandbox = refusal.message == Refusal::not_found("sandbox").message;
    if refusal.code != ErrorCode::NotFound || about_sandbox {
        return refusal;
    }
    Refusal {
        message: format!("session not found: {}", refusal.message),
        ..refusal
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_context_is_a_session_not_found_and_a_missing_sandbox_a_sandbox() {
        let told = |refusal| of_session(refusal).message;
        assert_eq!(told(Refusal::not_found("sandbox")), "sandbox not found");
        let gone = Refusal::new(ErrorCode::NotFound, "there is no context 1");
        assert_eq!(told(gone), "session not found: there is no context 1");
        assert_eq!(told(Refusal::new(ErrorCode::TooMany, "32 run")), "32 run");
    }
}
