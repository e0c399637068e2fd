//! Who asks.

use atoll_model::{ErrorCode, KeyId, Refusal, Scope, WorkspaceId};

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
}

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
