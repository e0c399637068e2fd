//! Recipe to rootfs to baked snapshot.
//!
//! A template is a folder with a recipe (`template.toml`, see [`Recipe`]) and its smoke tests (`smoke.toml`, see [`Smoke`]).
//! [`Templates::ensure`] makes it usable: a root directory out of packages ([`rootfs`]), the agent and its context drivers
//! beside it ([`GuestImage`]), then a *bake*: a machine is booted on it, warmed, tested and snapshotted ([`BakedTemplate`]).
//! Each step is made in a folder of its own and renamed into place, so that a crash leaves only what the next start removes.
//! The layout on disk is in docs/design/0001-foundation.md; `places` is the one file that spells it.
//!
//! This crate knows how a template comes to be, not who may use it: that is `control`'s.

mod bake;
mod catalog;
mod digest;
mod error;
mod guest;
mod log;
mod places;
mod progress;
mod recipe;
pub mod rootfs;
mod smoke;
mod templates;

pub use bake::{BakedTemplate, warm_again};
pub use catalog::{Catalog, RecipeFolder};
pub use digest::Digest;
pub use error::{RecipeError, TemplateError};
pub use guest::{GuestFile, GuestImage};
pub use progress::{BuildEvent, Phase, Progress};
pub use recipe::{BaseSystem, FileEntry, FolderEntry, Recipe, UserEntry, WarmUp};
pub use smoke::{Smoke, SmokeCell, SmokeCommand};
pub use templates::{TemplateInfo, Templates, TemplatesConfig};
