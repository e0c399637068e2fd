//! Keys that were seen lately, so that a call costs no read of the store.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use atoll_store::KeyRow;

/// Keys that are remembered between calls.
const REMEMBERED: usize = 4096;

/// Rows by the hash of the key's text.
#[derive(Debug, Default)]
pub(crate) struct KeyCache(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    keys: HashMap<[u8; 32], KeyRow>,
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

    pub(crate) fn put(&self, row: &KeyRow, seen_revocations: u64) {
        let mut remembered = self.lock();
        if remembered.revocations != seen_revocations {
            return;
        }
        if remembered.keys.len() >= REMEMBERED {
            remembered.keys.clear();
        }
        remembered.keys.insert(row.hash, row.clone());
    }

    pub(crate) fn forget(&self, hash: &[u8; 32]) {
        let mut remembered = self.lock();
        remembered.revocations += 1;
        remembered.keys.remove(hash);
    }
}

#[cfg(test)]
mod tests {
    use atoll_model::{KeyId, Scope, WorkspaceId};
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
        cache.forget(&row.hash);
        cache.put(&row, seen);
        assert_eq!(cache.get(&row.hash).0, None);
        let (_, seen) = cache.get(&row.hash);
        cache.put(&row, seen);
        assert!(cache.get(&row.hash).0.is_some());
    }
}
