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
        Some(libc::ENOENT | libc::ESRCH | libc::ESTALE) => Code::NotFound,
        // The last ones are what files of the kernel and of devices say that cannot be read or written like a plain one.
        Some(
            libc::EISDIR
            | libc::ENOTDIR
            | libc::ENXIO
            | libc::EAGAIN
            | libc::ELOOP
            | libc::EIO
            | libc::ENODEV
            | libc::ENODATA
            | libc::EOPNOTSUPP
            | libc::ENOSYS
            | libc::ENOTTY
            | libc::ESPIPE
            | libc::EXDEV
            | libc::EBADF
            | libc::EPIPE,
        ) => Code::WrongKind,
        Some(libc::EEXIST | libc::ENOTEMPTY | libc::EBUSY | libc::ETXTBSY | libc::EMLINK) => Code::Conflict,
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => Code::Permission,
        Some(libc::ENOSPC | libc::EDQUOT) => Code::DiskFull,
        Some(libc::E2BIG) => Code::ArgumentTooLong,
        Some(libc::EINVAL | libc::ENAMETOOLONG | libc::EFBIG | libc::EOVERFLOW | libc::EILSEQ) => Code::Invalid,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => Code::TooMany,
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

#[cfg(test)]
mod tests {
    use nix::libc;

    use super::*;

    #[test]
    fn what_a_path_cannot_do_is_its_callers_and_no_fault_of_the_agent() {
        for number in [
            libc::EIO,
            libc::ENOTDIR,
            libc::EISDIR,
            libc::ELOOP,
            libc::ENAMETOOLONG,
            libc::ETXTBSY,
            libc::EROFS,
            libc::ENXIO,
            libc::EPERM,
            libc::EFBIG,
            libc::EOPNOTSUPP,
            libc::ENODEV,
            libc::ENOMEM,
        ] {
            let refusal = from_io("/a/path", &io::Error::from_raw_os_error(number));
            assert!(status(refusal.code).is_client_error(), "{refusal:?}");
            assert!(refusal.message.starts_with("/a/path: ") && !refusal.message.contains("os error"));
        }
    }
}
