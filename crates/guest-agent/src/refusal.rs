//! How the agent says no.

use std::io;

use atoll_protocol::types::{GuestCode, GuestRefusal};
use http::StatusCode;

/// A refusal of this kind.
pub(crate) fn refuse(code: GuestCode, message: impl Into<String>) -> GuestRefusal {
    GuestRefusal {
        code,
        message: message.into(),
    }
}

/// What an operating system error means to a caller; `what` is a path or a name.
pub(crate) fn from_io(what: &str, error: &io::Error) -> GuestRefusal {
    use GuestCode as Code;
    use nix::libc;
    let code = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => Code::NotFound,
        Some(libc::EISDIR | libc::ENOTDIR | libc::ENXIO | libc::EAGAIN | libc::ELOOP) => Code::WrongKind,
        Some(libc::EEXIST | libc::ENOTEMPTY | libc::EBUSY | libc::ETXTBSY) => Code::Conflict,
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => Code::Permission,
        Some(libc::ENOSPC | libc::EDQUOT) => Code::DiskFull,
        Some(libc::E2BIG) => Code::ArgumentTooLong,
        Some(libc::EINVAL | libc::ENAMETOOLONG) => Code::Invalid,
        Some(libc::EMFILE | libc::ENFILE) => Code::TooMany,
        _ => Code::Internal,
    };
    refuse(code, format!("{what}: {}", describe(error)))
}

/// The error in words, without the number that Rust appends.
fn describe(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => nix::errno::Errno::from_raw(number).desc().to_owned(),
        None => error.to_string(),
    }
}

/// The status that goes with it. Clients read the code; the status is for those who look at the wire.
pub(crate) fn status(code: GuestCode) -> StatusCode {
    match code {
        GuestCode::Invalid | GuestCode::ArgumentTooLong | GuestCode::WrongKind => StatusCode::BAD_REQUEST,
        GuestCode::NotFound | GuestCode::CommandNotFound => StatusCode::NOT_FOUND,
        GuestCode::Conflict | GuestCode::NotExecutable => StatusCode::CONFLICT,
        GuestCode::Permission => StatusCode::FORBIDDEN,
        GuestCode::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
        GuestCode::TooMany => StatusCode::TOO_MANY_REQUESTS,
        GuestCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
