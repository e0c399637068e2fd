//! Who asks.

use std::fmt;

use atoll_model::{ErrorCode, KeyId, Refusal, Scope, WorkspaceId};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

/// The caller of a use case: what [`Control::authenticate`](crate::Control::authenticate) makes of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The tenant. Everything that the caller sees and makes belongs to it.
    pub workspace: WorkspaceId,
    /// The credential's row.
    pub key: KeyId,
    /// The first characters of the credential, as shown in lists and logs.
    pub key_prefix: String,
    /// What the credential may do.
    pub scope: Scope,
    /// The end of the credential.
    pub key_end: KeyEnd,
}

/// When a credential is no longer good.
#[derive(Clone)]
pub struct KeyEnd {
    pub(crate) revoked: CancellationToken,
    pub(crate) expires_at: Option<OffsetDateTime>,
}

impl KeyEnd {
    /// Resolves when the key is revoked or expires.
    pub async fn reached(&self) {
        let expired = async {
            match self.expires_at {
                Some(at) => {
                    // A time that is past is a negative duration, and reached at once.
                    let left = at - OffsetDateTime::now_utc();
                    tokio::time::sleep(left.try_into().unwrap_or_default()).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.revoked.cancelled() => {}
            () = expired => {}
        }
    }
}

impl fmt::Debug for KeyEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyEnd")
            .field("revoked", &self.revoked.is_cancelled())
            .field("expires_at", &self.expires_at)
            .finish()
    }
}

/// Those of one key are the same.
impl PartialEq for KeyEnd {
    fn eq(&self, other: &Self) -> bool {
        self.revoked.is_cancelled() == other.revoked.is_cancelled() && self.expires_at == other.expires_at
    }
}

impl Eq for KeyEnd {}

impl Caller {
    /// Checks that the caller's scope reaches `needed`. Every use case does this itself; an API need not.
    ///
    /// # Errors
    /// `Forbidden`, naming the scope that would do.
    pub fn require(&self, needed: Scope) -> Result<(), Refusal> {
        if self.scope >= needed {
            return Ok(());
        }
        Err(Refusal::new(
            ErrorCode::Forbidden,
            format!(
                "this key has the scope {}; this call needs a key with the scope {}",
                self.scope.as_str(),
                needed.as_str()
            ),
        ))
    }
}
