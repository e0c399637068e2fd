//! What can go wrong between a recipe and its bake.

use std::{io, path::PathBuf};

use atoll_engine::EngineError;
use atoll_guest_link::{GuestError, LinkError};
use atoll_host::ProgramError;
use atoll_model::TemplateName;

/// Why a recipe is not usable.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// The file is no TOML, lacks a field, or has one that is unknown or of the wrong type.
    #[error("{file}: {detail}")]
    Syntax {
        /// As in `code-interpreter/template.toml`.
        file: String,
        /// The parser's words, with line and field.
        detail: String,
    },
    /// A field's value is not allowed.
    #[error("{file}: {field} {rule}")]
    Field {
        /// As in `code-interpreter/template.toml`.
        file: String,
        /// As in `python.packages[3]`.
        field: String,
        /// The rest of the sentence: what is wrong, and what would be right.
        rule: String,
    },
    /// Two templates claim one name.
    #[error("the name {name} belongs to the templates {first} and {second}")]
    NameTwice {
        /// Name or alias.
        name: String,
        /// One of them.
        first: TemplateName,
        /// The other.
        second: TemplateName,
    },
    /// A recipe's folder cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Folder or file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Why a template could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// There is no recipe of that name.
    #[error("there is no template named {0}; `atoll template ls` lists those that there are")]
    Unknown(String),
    /// A recipe is not usable.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// A program that builds rootfs is not installed.
    #[error("{program} is not installed; it comes with the package {package}")]
    Missing {
        /// Its name.
        program: &'static str,
        /// Debian's package.
        package: &'static str,
    },
    /// The machine's package sources have nothing for the recipe's suite.
    #[error("the machine's apt sources name no Debian mirror with suite {suite}, so nothing can be installed from it")]
    NoMirror {
        /// As in `bookworm`.
        suite: String,
    },
    /// A program that builds the rootfs failed.
    #[error("{step} failed")]
    Program {
        /// What it was doing, as in "installing Python packages".
        step: &'static str,
        /// Its last words.
        #[source]
        source: ProgramError,
    },
    /// The host's file system refused.
    #[error("cannot {action} {}", path.display())]
    Host {
        /// As in "write".
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The machine of the bake could not be started, stored or stopped.
    #[error("the engine could not {action}")]
    Engine {
        /// As in "boot the template".
        action: &'static str,
        /// Why.
        #[source]
        source: EngineError,
    },
    /// The agent of the bake's machine was not reached.
    #[error("the agent in the template's machine does not answer")]
    Link(#[from] LinkError),
    /// The agent refused or failed.
    #[error("{step} failed")]
    Guest {
        /// As in "warming python".
        step: String,
        /// Why.
        #[source]
        source: GuestError,
    },
    /// A smoke test did not pass: the template would not do its work.
    #[error("the smoke test {test:?} failed: {detail}")]
    Smoke {
        /// Its name.
        test: String,
        /// What was expected and what came.
        detail: String,
    },
    /// The kernel gives no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] getrandom::Error),
    /// Somebody stopped the build.
    #[error("the build was cancelled")]
    Cancelled,
}

impl TemplateError {
    pub(crate) fn host(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Host { action, path, source }
    }

    pub(crate) fn program(step: &'static str) -> impl FnOnce(ProgramError) -> Self {
        move |source| Self::Program { step, source }
    }

    pub(crate) fn engine(action: &'static str) -> impl FnOnce(EngineError) -> Self {
        move |source| Self::Engine { action, source }
    }

    pub(crate) fn guest(step: impl Into<String>) -> impl FnOnce(GuestError) -> Self {
        let step = step.into();
        move |source| Self::Guest { step, source }
    }
}
