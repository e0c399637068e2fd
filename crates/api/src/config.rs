//! What an operator may set about the API.

/// Settings of [`router`](crate::router).
#[derive(Debug, Clone, Default)]
pub struct ApiConfig {
    /// Whether `/metrics` answers without a key. The numbers span all workspaces, so this suits only an address that
    /// none but the operator reaches. Off by default.
    pub open_metrics: bool,
}
