//! Calls about the machine as a whole.

use atoll_protocol::{
    route,
    types::{Stats, ThawReply, ThawRequest, WarmRequest},
};
use http::Method;

use crate::{GuestError, GuestLink};

impl GuestLink {
    /// Makes a restored machine a new one. Before the reply nothing may be run in it.
    ///
    /// # Errors
    /// [`GuestError`]; the machine must not be used then.
    pub async fn thaw(&self, thaw: &ThawRequest) -> Result<ThawReply, GuestError> {
        self.call(Method::POST, route::THAW, &[], Some(thaw)).await
    }

    /// How the agent and its machine are doing.
    ///
    /// # Errors
    /// [`GuestError`].
    pub async fn stats(&self) -> Result<Stats, GuestError> {
        self.call(Method::GET, route::STATS, &[], None::<&()>).await
    }

    /// Starts and warms a language's zygote; for bakes.
    ///
    /// # Errors
    /// [`GuestError::Refused`] with the driver's own words when the warm-up fails or takes longer than it may.
    pub async fn warm(&self, warm: &WarmRequest) -> Result<(), GuestError> {
        self.call_for_nothing(Method::POST, route::WARM, &[], Some(warm)).await
    }
}
