//! Keys that were seen lately, so that a call costs no read of the store.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use atoll_model::KeyId;
use atoll_store::KeyRow;
use tokio_util::sync::CancellationToken;

/// Keys that are remembered between calls.
const REMEMBERED: usize = 4096;

/// Rows by the hash of the key's text.
#[derive(Debug, Default)]
pub(crate) struct KeyCache(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    keys: HashMap<[u8; 32], KeyRow>,
    /// What ends the calls of a key when it is revoked; one for each key that was used since the server started.
    ends: HashMap<KeyId, CancellationToken>,
    /// Counts revocations: a row that was read before one of them must not be remembered after it.
    revocations: u64,
}

impl KeyCache {
    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, hash: &[u8; 32]) -> (Option<KeyRow>, u64) {
        let remembered = self.lock();
        (remembered.keys.get(hash).cloned(), remembered.revocations)
    }

    /// Remembers a row and gives what is cancelled when its key is revoked; `None` when a key was revoked since the row was read.
    pub(crate) fn put(&self, row: &KeyRow, seen_revocations: u64) -> Option<CancellationToken> {
        let mut remembered = self.lock();
        if remembered.revocations != seen_revocations {
            return None;
        }
        if remembered.keys.len() >= REMEMBERED {
            remembered.keys.clear();
        }
        remembered.keys.insert(row.hash, row.clone());
        Some(remembered.ends.entry(row.id).or_default().clone())
    }

    /// Forgets a revoked key and ends its calls.
    pub(crate) fn forget(&self, row: &KeyRow) {
        let mut remembered = self.lock();
        remembered.revocations += 1;
        remembered.keys.remove(&row.hash);
        if let Some(end) = remembered.ends.remove(&row.id) {
            end.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use atoll_model::{Scope, WorkspaceId};
    use time::OffsetDateTime;

    use super::*;

    #[test]
    fn a_row_read_before_a_revocation_is_not_remembered_after_it() {
        let cache = KeyCache::default();
        let row = KeyRow {
            id: KeyId::random(),
            workspace: WorkspaceId::random(),
            hash: [1; 32],
            prefix: "atl_00000000".into(),
            name: "n".into(),
            scope: Scope::Full,
            created_at: OffsetDateTime::UNIX_EPOCH,
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
        };
        let (_, seen) = cache.get(&row.hash);
        cache.forget(&row);
        assert!(cache.put(&row, seen).is_none());
        assert_eq!(cache.get(&row.hash).0, None);
        let (_, seen) = cache.get(&row.hash);
        let end = cache.put(&row, seen).unwrap();
        assert!(cache.get(&row.hash).0.is_some() && !end.is_cancelled());
        cache.forget(&row);
        assert!(end.is_cancelled());
    }
}
