//! The fake on this host's own root directory, as the flows use it.

use std::path::{Path, PathBuf};

use atoll_engine::{
    Engine, MachinePlan,
    conformance::{Talk, guest_dir},
};
use atoll_engine_fake::Fake;
use atoll_model::{Limits, MachineId, SandboxId};

#[tokio::test]
async fn what_the_guest_writes_anywhere_stays_its_own() {
    let state = tempfile::tempdir().unwrap();
    let engine = Fake::new(state.path()).unwrap();
    let plan = MachinePlan {
        id: MachineId::from(SandboxId::random()),
        rootfs: PathBuf::from("/"),
        guest_dir: guest_dir(),
        limits: Limits::default(),
        hostname: "fake".to_owned(),
    };
    let id = plan.id.clone();
    let mut guest = Talk::with(engine.boot(plan).await.unwrap());
    for folder in ["/", "/tmp/", "/etc/", "/opt/", "/var/tmp/", "/root/"] {
        let path = format!("{folder}atoll-{id}");
        assert_eq!(guest.ask(&format!("write {path} x")).await, "ok", "{path}");
        assert_eq!(guest.ask(&format!("read {path}")).await, "x");
        assert!(!Path::new(&path).exists(), "{path} is on the host");
    }
    assert!(guest.ask("read /etc/passwd").await.starts_with("root:"));
    assert_ne!(guest.ask("write /opt/atoll/agent x").await, "ok");
    engine.stop(&id).await.unwrap();
}
