//! What sandboxes see at `/opt/atoll` is whole after each start of a server, whatever the disk made of it meanwhile.

use std::{
    fs::{self, OpenOptions, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use atoll_template::{Templates, TemplatesConfig};

fn start_server_on(state: &Path) {
    let config = TemplatesConfig {
        state_dir: state.to_owned(),
        built_in: atoll_guest_image::recipes(),
        recipes_dir: None,
        guest: atoll_guest_image::guest(),
    };
    Templates::open(config).unwrap();
}

#[test]
fn a_start_repairs_the_agent_and_the_drivers() {
    let state = tempfile::tempdir().unwrap();
    start_server_on(state.path());
    let guest = state
        .path()
        .join("guest")
        .join(atoll_guest_image::guest().digest().as_str());
    let (agent, driver) = (guest.join("agent"), guest.join("contexts/python/zygote.py"));
    let look = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        (fs::read(path).unwrap(), found.mode(), found.mtime())
    };
    let (whole_agent, whole_driver) = (look(&agent), look(&driver));
    assert!(whole_agent.1 & 0o111 != 0);

    let running = fs::File::open(&agent).unwrap();
    OpenOptions::new()
        .write(true)
        .open(&agent)
        .unwrap()
        .set_len(1000)
        .unwrap();
    fs::set_permissions(&driver, Permissions::from_mode(0o600)).unwrap();
    start_server_on(state.path());

    assert!(look(&agent) == whole_agent && look(&driver) == whole_driver);
    assert_eq!(
        running.metadata().unwrap().len(),
        1000,
        "a file is replaced, never written over"
    );
    assert_eq!(fs::read_dir(state.path().join("guest")).unwrap().count(), 1);
}
