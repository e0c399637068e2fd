//! Files.

use std::os::unix::fs::{PermissionsExt, symlink};

use atoll_guest_link::GuestError;
use atoll_protocol::types::{FileKind, GuestCode};
use bytes::Bytes;
use futures_util::stream;

use crate::guest::{Guest, eventually};

async fn read(guest: &Guest, path: &str) -> Result<Vec<u8>, GuestError> {
    let mut file = guest.link.file_read(path, 0, None).await?;
    let mut whole = Vec::new();
    while let Some(piece) = file.next().await? {
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}

async fn write(guest: &Guest, path: &str, data: &[u8]) -> Result<u64, GuestError> {
    let pieces: Vec<Result<Bytes, std::io::Error>> = data
        .chunks(100_000)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    Ok(guest.link.file_write(path, None, stream::iter(pieces)).await?.bytes)
}

fn code<T: std::fmt::Debug>(result: Result<T, GuestError>) -> GuestCode {
    match result {
        Err(GuestError::Refused(refusal)) => refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn bytes_come_back_as_they_went() {
    let guest = Guest::boot().await;
    let all: Vec<u8> = (0..=255).collect();
    for (name, data) in [("empty", vec![]), ("bytes", all), ("large", vec![7; 5_000_001])] {
        let path = guest.path(&format!("new/folder/{name}"));
        assert_eq!(write(&guest, &path, &data).await.expect("a write"), data.len() as u64);
        assert!(read(&guest, &path).await.expect("a read") == data, "{name}");
    }
    let path = guest.path("new/folder/bytes");
    let mut part = guest.link.file_read(&path, 250, Some(3)).await.expect("a part");
    assert_eq!(part.size(), Some(3));
    assert_eq!(
        part.next().await.expect("a piece").as_deref(),
        Some(&[250, 251, 252][..])
    );
    assert_eq!(part.next().await.expect("the end"), None);
}

#[tokio::test]
async fn two_hundred_writes_at_once_are_all_there() {
    let guest = Guest::boot().await;
    let writes = (0..200_u8).map(|n| {
        let guest = &guest;
        async move {
            let (path, data) = (guest.path(&format!("w/a/b/c/{n}")), vec![n; 64 * 1024]);
            write(guest, &path, &data).await.expect("a write");
            assert!(read(guest, &path).await.expect("a read") == data);
        }
    });
    futures_util::future::join_all(writes).await;
    assert_eq!(
        guest
            .link
            .file_list(&guest.path("w/a/b/c"), None, 1000)
            .await
            .expect("a list")
            .entries
            .len(),
        200
    );
}

#[tokio::test]
async fn special_files_are_refused_without_waiting_and_the_kernels_own_are_read() {
    let guest = Guest::boot().await;
    let fifo = guest.path("fifo");
    assert!(guest.sh(&format!("mkfifo {fifo}")).await.ok());
    for path in [
        fifo.as_str(),
        "/dev/zero",
        "/dev",
        guest.folder.path().to_str().expect("a path"),
    ] {
        assert_eq!(
            code(guest.link.file_read(path, 0, None).await),
            GuestCode::WrongKind,
            "{path}"
        );
        assert_eq!(code(write(&guest, path, b"x").await), GuestCode::WrongKind, "{path}");
    }
    let cpuinfo = read(&guest, "/proc/cpuinfo").await.expect("cpuinfo");
    assert!(String::from_utf8_lossy(&cpuinfo).contains("processor"));
    assert_eq!(
        code(guest.link.file_read(&guest.path("none"), 0, None).await),
        GuestCode::NotFound
    );
    for path in ["relative", "", "/a\0b"] {
        assert_eq!(code(guest.link.file_stat(path).await), GuestCode::Invalid, "{path:?}");
    }
    let long = format!("/{}", "n".repeat(300));
    assert_eq!(code(write(&guest, &long, b"x").await), GuestCode::Invalid);
}

#[tokio::test]
async fn a_write_replaces_what_a_link_leads_to_and_keeps_its_mode() {
    let guest = Guest::boot().await;
    let (target, link) = (guest.path("target"), guest.path("link"));
    std::fs::write(&target, "old").expect("a file");
    std::fs::set_permissions(&target, PermissionsExt::from_mode(0o750)).expect("a mode");
    symlink("target", &link).expect("a link");
    write(&guest, &link, b"new").await.expect("a write");
    assert_eq!(std::fs::read(&target).expect("the file"), b"new");
    assert!(std::fs::symlink_metadata(&link).expect("the link").is_symlink());
    assert_eq!(guest.link.file_stat(&link).await.expect("a stat").mode, 0o750);
    symlink("loop", guest.path("loop")).expect("a link");
    assert_eq!(
        code(write(&guest, &guest.path("loop"), b"x").await),
        GuestCode::WrongKind
    );
    let nothing = stream::iter([Ok::<_, std::io::Error>(Bytes::new())]);
    guest
        .link
        .file_write(&guest.path("m"), Some(0o4711), nothing)
        .await
        .expect("a write");
    assert_eq!(
        guest.link.file_stat(&guest.path("m")).await.expect("a stat").mode,
        0o4711
    );
}

#[tokio::test]
async fn a_body_that_breaks_leaves_nothing() {
    let guest = Guest::boot().await;
    let path = guest.path("half");
    let pieces = [Ok(Bytes::from(vec![1; 300_000])), Err(std::io::Error::other("gone"))];
    let written = guest.link.file_write(&path, None, stream::iter(pieces)).await;
    assert!(matches!(written, Err(GuestError::Body(_))), "{written:?}");
    eventually("the folder is empty", || async {
        std::fs::read_dir(guest.folder.path()).expect("the folder").count() == 0
    })
    .await;
}

#[tokio::test]
async fn entries_are_listed_in_pages_without_gaps() {
    let guest = Guest::boot().await;
    let folder = guest.path("many");
    assert!(
        guest
            .sh(&format!(
                "mkdir {folder}; cd {folder}; seq 1 5000 | xargs touch; ln -s / root; mkdir sub"
            ))
            .await
            .ok()
    );
    let (mut names, mut after) = (Vec::new(), None);
    loop {
        let page = guest
            .link
            .file_list(&folder, after.as_deref(), 700)
            .await
            .expect("a page");
        names.extend(page.entries.into_iter().map(|entry| (entry.name, entry.kind)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(names.len(), 5002);
    assert!(names.is_sorted_by(|a, b| a.0 < b.0));
    assert!(names.contains(&("root".to_owned(), FileKind::Symlink)));
    assert!(names.contains(&("sub".to_owned(), FileKind::Directory)));
    assert_eq!(code(guest.link.file_list(&folder, None, 0).await), GuestCode::Invalid);
    assert_eq!(
        code(guest.link.file_list("/etc/passwd", None, 10).await),
        GuestCode::WrongKind
    );
}

#[tokio::test]
async fn folders_are_made_moved_and_removed() {
    let guest = Guest::boot().await;
    guest.link.file_mkdir(&guest.path("a/b/c")).await.expect("a folder");
    guest.link.file_mkdir(&guest.path("a/b/c")).await.expect("once more");
    write(&guest, &guest.path("a/b/c/f"), b"x").await.expect("a file");
    symlink("/etc/passwd", guest.path("a/l")).expect("a link");
    assert_eq!(
        code(guest.link.file_mkdir(&guest.path("a/b/c/f/g")).await),
        GuestCode::WrongKind
    );
    guest
        .link
        .file_move(&guest.path("a/b"), &guest.path("moved"))
        .await
        .expect("a move");
    assert_eq!(read(&guest, &guest.path("moved/c/f")).await.expect("the file"), b"x");
    assert_eq!(
        code(guest.link.file_move(&guest.path("none"), &guest.path("x")).await),
        GuestCode::NotFound
    );
    guest.link.file_remove(&guest.path("a")).await.expect("removed");
    assert!(std::path::Path::new("/etc/passwd").exists());
    assert_eq!(
        code(guest.link.file_remove(&guest.path("a")).await),
        GuestCode::NotFound
    );
    assert_eq!(code(guest.link.file_remove("/").await), GuestCode::Invalid);
}

#[tokio::test]
async fn a_move_to_another_file_system_carries_all() {
    let guest = Guest::boot().await;
    let other = tempfile::tempdir_in("/dev/shm").expect("another file system");
    let script = format!(
        "cd {}; mkdir -p d/e; echo hi > d/e/f; chmod 750 d/e; ln -s f d/e/l",
        guest.folder.path().display()
    );
    assert!(guest.sh(&script).await.ok());
    let to = other.path().join("d").to_string_lossy().into_owned();
    guest.link.file_move(&guest.path("d"), &to).await.expect("a move");
    assert_eq!(std::fs::read_to_string(format!("{to}/e/l")).expect("the file"), "hi\n");
    assert_eq!(
        guest.link.file_stat(&format!("{to}/e")).await.expect("a stat").mode,
        0o750
    );
    assert_eq!(code(guest.link.file_stat(&guest.path("d")).await), GuestCode::NotFound);
}
