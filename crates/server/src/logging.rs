//! Where log lines go and how they look.

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::settings::LogFormat;

/// The filter is not one.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// It cannot be parsed.
    #[error("log is not a filter: {0}; it is a level as in \"info\", or directives as in \"info,atoll_control=debug\"")]
    Filter(String),
    /// Something in this process logs already.
    #[error("logging was set up before")]
    Twice,
}

/// Sends log lines to standard error from here on.
///
/// # Errors
/// [`LoggingError`].
pub fn install(filter: &str, format: LogFormat) -> Result<(), LoggingError> {
    let filter = EnvFilter::try_new(filter).map_err(|error| LoggingError::Filter(error.to_string()))?;
    let registry = tracing_subscriber::registry().with(filter);
    let lines = fmt::layer().with_writer(std::io::stderr);
    let installed = match format {
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
        // Colours are for the person who started the server from a terminal.
        LogFormat::Text => registry.with(lines.with_ansi(colours())).try_init(),
    };
    installed.map_err(|_| LoggingError::Twice)
}

fn colours() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && std::io::IsTerminal::is_terminal(&std::io::stderr())
}
