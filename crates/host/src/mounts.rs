//! What is mounted, and taking it away.

use std::{
    ffi::OsString,
    io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use nix::mount::{MntFlags, umount2};

/// Every mount point at or below `folder`, deepest first: the order to unmount in.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = parse_mount_points(&std::fs::read("/proc/self/mountinfo")?);
    found.retain(|mount| mount.starts_with(folder));
    found.sort_by_key(|mount| std::cmp::Reverse(mount.components().count()));
    Ok(found)
}

/// Unmounts what is mounted at `path`, even when a program still has files open there (they keep working until closed).
/// `Ok` when nothing is mounted there.
///
/// # Errors
/// When we may not.
pub fn unmount(path: &Path) -> io::Result<()> {
    match umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) | Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The fifth field of each line of proc_pid_mountinfo(5), where space, tab, newline and backslash are octal escapes.
fn parse_mount_points(mountinfo: &[u8]) -> Vec<PathBuf> {
    let lines = mountinfo.split(|&byte| byte == b'\n');
    lines
        .filter_map(|line| line.split(|&byte| byte == b' ').nth(4))
        .map(|field| PathBuf::from(OsString::from_vec(unescape(field))))
        .collect()
}

fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if first == b'\\' => {
                plain.push(byte);
                rest = &after[3..];
            }
            _ => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_come_without_their_escapes() {
        let table = b"36 35 98:0 / /mnt/a\\040b rw - ext4 /dev/x rw\n37 36 0:1 / / rw - proc proc rw\n";
        assert_eq!(
            parse_mount_points(table),
            [PathBuf::from("/mnt/a b"), PathBuf::from("/")]
        );
    }
}
