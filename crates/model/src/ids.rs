//! Ids: each a type of its own, parsed at the edge and never joined to a path as text from a caller.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A text that is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} ids look like {example}")]
pub struct InvalidId {
    kind: &'static str,
    example: &'static str,
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Uuid);

        impl $name {
            /// A new random id (UUID version 4).
            #[must_use]
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0.as_hyphenated())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            /// Takes exactly the text that `Display` writes: 36 lower-case characters.
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let parsed = Uuid::try_parse(text).ok().map(Self);
                parsed.filter(|id| id.to_string() == text).ok_or(InvalidId {
                    kind: $kind,
                    example: "0b9f8f5e-5a0e-4c5b-9a7a-4d3a51f1f7c2",
                })
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

uuid_id!(
    /// A sandbox. On the wire: a lower-case hyphenated UUID (contract pandastack-v1 §2.1).
    SandboxId, "sandbox"
);
uuid_id!(
    /// A workspace, the tenant that owns sandboxes and keys.
    WorkspaceId, "workspace"
);
uuid_id!(
    /// A credential's row; not the credential itself.
    KeyId, "key"
);

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(u64);

        impl $name {
            /// A new random id.
            #[must_use]
            pub fn random() -> Self {
                // The upper half of a version 4 UUID has six fixed bits; fold both halves together.
                let (high, low) = Uuid::new_v4().as_u64_pair();
                Self(high.rotate_left(17) ^ low)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let parsed = u64::from_str_radix(text, 16).ok().map(Self);
                parsed.filter(|id| id.to_string() == text).ok_or(InvalidId {
                    kind: $kind,
                    example: "16 lower-case hexadecimal digits",
                })
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

hex_id!(
    /// A code context inside a sandbox: 16 hexadecimal digits (contract pandastack-v1 §2.10).
    ContextId, "context"
);
hex_id!(
    /// One execution of a command inside a sandbox.
    ExecId, "exec"
);
hex_id!(
    /// One build of a template.
    BuildId, "build"
);

/// What an engine calls a machine: a sandbox's id, or `bake-` and a build's id.
///
/// Only lower-case letters, digits and dashes, at most 57 characters, so that it is safe as a file name,
/// a container name, a cgroup name and a host name label.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MachineId(String);

impl MachineId {
    /// The machine of a bake.
    #[must_use]
    pub fn bake(build: BuildId) -> Self {
        Self(format!("bake-{build}"))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The sandbox whose machine this is; `None` for a bake's machine.
    #[must_use]
    pub fn sandbox(&self) -> Option<SandboxId> {
        self.0.parse().ok()
    }
}

impl From<SandboxId> for MachineId {
    fn from(id: SandboxId) -> Self {
        Self(id.to_string())
    }
}

impl FromStr for MachineId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if (1..=57).contains(&text.len()) && text.chars().all(allowed) && !text.starts_with('-') {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidId {
                kind: "machine",
                example: "at most 57 lower-case letters, digits and dashes",
            })
        }
    }
}

impl TryFrom<String> for MachineId {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<MachineId> for String {
    fn from(id: MachineId) -> Self {
        id.0
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_id_takes_only_its_own_text_form() {
        let id = SandboxId::random();
        assert_eq!(id.to_string().parse::<SandboxId>().unwrap(), id);
        for text in [
            "",
            "..",
            "../keys",
            &id.to_string().to_uppercase(),
            &id.to_string().replace('-', ""),
        ] {
            assert!(text.parse::<SandboxId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_context_id_is_sixteen_digits() {
        let id = ContextId::random();
        assert_eq!(id.to_string().len(), 16);
        assert!("+123456789abcdef".parse::<ContextId>().is_err());
        assert!("0123456789ABCDEF".parse::<ContextId>().is_err());
    }

    #[test]
    fn a_machine_id_cannot_leave_its_folder() {
        for text in ["", ".", "..", "a/b", "-x", "A", "a\n", &"a".repeat(58)] {
            assert!(text.parse::<MachineId>().is_err(), "{text}");
        }
        assert_eq!(MachineId::from(SandboxId::random()).as_str().len(), 36);
    }
}
