//! Keys: made, checked, listed, revoked.
//!
//! A key is 20 random bytes in hexadecimal digits behind `atl_`. `e2b_` and the same digits is the same key, because the
//! clients of that dialect check the prefix. Only the SHA-256 of the digits is kept: a key has 160 bits of entropy, so
//! nothing slower is needed.

use std::fmt;

use atoll_model::{ErrorCode, KeyId, Refusal, Scope, WorkspaceId};
use atoll_store::KeyRow;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use time::{Duration, OffsetDateTime};
use zeroize::Zeroizing;

use crate::{Caller, Control, KeyView, MeView, caller::KeyEnd, check::check_short, refusal};

const PREFIX: &str = "atl_";
const PREFIXES: [&str; 2] = [PREFIX, "e2b_"];
const DIGITS: usize = 40;
/// Digits that lists and logs show.
const SHOWN_DIGITS: usize = 8;
/// How exactly the last use is noted: a write to the store at most so often for each key.
const USE_NOTED_EVERY: Duration = Duration::MINUTE;

/// A credential's text. It does not print, and is wiped from memory when dropped.
pub struct KeyText(Zeroizing<String>);

impl KeyText {
    /// The text: `atl_` and 40 hexadecimal digits.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    fn random() -> Result<Self, Refusal> {
        let mut bytes = Zeroizing::new([0u8; DIGITS / 2]);
        getrandom::fill(bytes.as_mut_slice())
            .map_err(|error| refusal::internal("no random numbers for a key", &error))?;
        let digits = Zeroizing::new(hex::encode(bytes.as_slice()));
        Ok(Self(Zeroizing::new(format!("{PREFIX}{}", digits.as_str()))))
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText(not shown)")
    }
}

/// The digits of a key's text; `None` for anything else.
fn digits(token: &str) -> Option<&str> {
    let digits = PREFIXES.iter().find_map(|prefix| token.strip_prefix(prefix))?;
    let hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (digits.len() == DIGITS && digits.bytes().all(hexadecimal)).then_some(digits)
}

fn hash(digits: &str) -> [u8; 32] {
    Sha256::digest(digits.as_bytes()).into()
}

impl Control {
    /// Who a credential is. `atl_` or `e2b_` and the same 40 hexadecimal digits are the same key.
    ///
    /// # Errors
    /// `Unauthorized`, with the same words for every reason.
    pub async fn authenticate(&self, token: &str) -> Result<Caller, Refusal> {
        let wanted = hash(digits(token).ok_or_else(wrong_key)?);
        loop {
            // Again when a key was revoked meanwhile: it may be this one.
            if let Some(caller) = self.authenticate_hash(&wanted).await? {
                return Ok(caller);
            }
        }
    }

    async fn authenticate_hash(&self, wanted: &[u8; 32]) -> Result<Option<Caller>, Refusal> {
        let (remembered, revocations) = self.inner.keys.get(wanted);
        let mut row = match remembered {
            Some(row) => row,
            None => {
                let found = self.inner.store.key_get(wanted).await;
                found
                    .map_err(|error| refusal::of_store(&error))?
                    .ok_or_else(wrong_key)?
            }
        };
        let now = OffsetDateTime::now_utc();
        let same = bool::from(row.hash.ct_eq(wanted));
        if !same || row.revoked_at.is_some() || row.expires_at.is_some_and(|end| end <= now) {
            return Err(wrong_key());
        }
        if row.last_used_at.is_none_or(|last| now - last >= USE_NOTED_EVERY) {
            row.last_used_at = Some(now);
            if let Err(error) = self.inner.store.key_used(row.id, now).await {
                tracing::warn!(error = refusal::chain(&error), "a key's use was not noted");
            }
        }
        let revoked = self.inner.keys.put(&row, revocations);
        Ok(revoked.map(|revoked| Caller {
            workspace: row.workspace,
            key: row.id,
            key_prefix: row.prefix,
            scope: row.scope,
            key_end: KeyEnd {
                revoked,
                expires_at: row.expires_at,
            },
        }))
    }

    /// Makes a key of the caller's workspace. The text is shown this once. Needs the scope admin.
    ///
    /// # Errors
    /// `Forbidden`; `InvalidRequest` for a name or a time to live that can't be.
    pub async fn key_create(
        &self,
        caller: &Caller,
        name: &str,
        scope: Scope,
        expires_in: Option<Duration>,
    ) -> Result<(KeyView, KeyText), Refusal> {
        caller.require(Scope::Admin)?;
        check_short("name", name)?;
        let now = OffsetDateTime::now_utc();
        let expires_at = match expires_in {
            None => None,
            Some(period) if period.is_positive() => now.checked_add(period).map(Some).ok_or_else(too_far)?,
            Some(_) => return Err(Refusal::field("expires_in", "a key must expire in the future")),
        };
        self.new_key(caller.workspace, name, scope, expires_at, now).await
    }

    /// The first key of a state folder; `None` when there was one already.
    pub(crate) async fn first_key(&self, workspace: WorkspaceId) -> Result<Option<KeyText>, Refusal> {
        let exists = self.inner.store.key_exists().await;
        if exists.map_err(|error| refusal::of_store(&error))? {
            return Ok(None);
        }
        let now = OffsetDateTime::now_utc();
        let (_, text) = self.new_key(workspace, "first", Scope::Admin, None, now).await?;
        Ok(Some(text))
    }

    async fn new_key(
        &self,
        workspace: WorkspaceId,
        name: &str,
        scope: Scope,
        expires_at: Option<OffsetDateTime>,
        now: OffsetDateTime,
    ) -> Result<(KeyView, KeyText), Refusal> {
        let text = KeyText::random()?;
        let row = KeyRow {
            id: KeyId::random(),
            workspace,
            hash: hash(&text.expose()[PREFIX.len()..]),
            prefix: text.expose()[..PREFIX.len() + SHOWN_DIGITS].to_owned(),
            name: name.to_owned(),
            scope,
            created_at: now,
            expires_at,
            revoked_at: None,
            last_used_at: None,
        };
        let inserted = self.inner.store.key_insert(&row).await;
        inserted.map_err(|error| refusal::of_store(&error))?;
        Ok((view(row), text))
    }

    /// The workspace's keys that were not revoked, newest first. Needs the scope admin.
    ///
    /// # Errors
    /// `Forbidden`.
    pub async fn key_list(&self, caller: &Caller) -> Result<Vec<KeyView>, Refusal> {
        caller.require(Scope::Admin)?;
        let rows = self.inner.store.key_list(caller.workspace).await;
        Ok(rows
            .map_err(|error| refusal::of_store(&error))?
            .into_iter()
            .map(view)
            .collect())
    }

    /// Revokes the workspace's key whose text begins with `prefix`, at once: its calls that are open end. Goes on when the caller
    /// goes away. Needs the scope admin.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` for the key that makes this very call, so that nobody locks himself out by accident.
    pub async fn key_revoke(&self, caller: &Caller, prefix: &str) -> Result<(), Refusal> {
        caller.require(Scope::Admin)?;
        if prefix == caller.key_prefix {
            return Err(Refusal::new(
                ErrorCode::Conflict,
                "a key can't revoke itself; use another admin key",
            ));
        }
        let (control, workspace, prefix) = (self.clone(), caller.workspace, prefix.to_owned());
        self.in_task(async move {
            let now = OffsetDateTime::now_utc();
            let revoked = control.inner.store.key_revoke(workspace, &prefix, now).await;
            let row = revoked.map_err(|error| refusal::of_store(&error))?;
            let row = row.ok_or_else(|| Refusal::not_found("key"))?;
            control.inner.keys.forget(&row);
            Ok(())
        })
        .await
    }

    /// What the caller is.
    ///
    /// # Errors
    /// `Unauthorized` when the key was revoked meanwhile.
    pub async fn me(&self, caller: &Caller) -> Result<MeView, Refusal> {
        let store = &self.inner.store;
        let workspace = store
            .workspace_get(caller.workspace)
            .await
            .map_err(|error| refusal::of_store(&error))?;
        let keys = store
            .key_list(caller.workspace)
            .await
            .map_err(|error| refusal::of_store(&error))?;
        let key = keys.into_iter().find(|row| row.id == caller.key);
        Ok(MeView {
            workspace: caller.workspace,
            workspace_name: workspace.ok_or_else(wrong_key)?.name,
            key: view(key.ok_or_else(wrong_key)?),
        })
    }
}

fn wrong_key() -> Refusal {
    Refusal::new(ErrorCode::Unauthorized, "the key is not valid here")
}

fn too_far() -> Refusal {
    Refusal::field("expires_in", "a key must expire before the year 10000")
}

fn view(row: KeyRow) -> KeyView {
    KeyView {
        id: row.id,
        prefix: row.prefix,
        name: row.name,
        scope: row.scope,
        created_at: row.created_at,
        expires_at: row.expires_at,
        last_used_at: row.last_used_at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_two_prefixes_and_nothing_else() {
        let text = KeyText::random().unwrap();
        let own = text.expose();
        let other = own.replacen("atl_", "e2b_", 1);
        assert_eq!(digits(own).map(hash), digits(&other).map(hash));
        assert!(digits(own).is_some());
        for bad in [
            "",
            "atl_",
            &own[..own.len() - 1],
            &own.to_uppercase(),
            &format!("{own}0"),
            &own[4..],
        ] {
            assert_eq!(digits(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_does_not_print() {
        let text = KeyText::random().unwrap();
        assert!(!format!("{text:?}").contains(&text.expose()[4..12]));
    }
}
