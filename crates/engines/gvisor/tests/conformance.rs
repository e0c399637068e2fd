//! The suite that every engine passes, on gVisor. Needs root and `runsc`, and fails without them: it is never skipped.

use std::path::Path;

use atoll_engine::{Engine, conformance::Lab};
use atoll_engine_gvisor::{Gvisor, GvisorConfig};

struct GvisorLab;

#[async_trait::async_trait]
impl Lab for GvisorLab {
    type Engine = Gvisor;

    async fn engine(state_dir: &Path) -> Gvisor {
        let config = GvisorConfig {
            state_dir: state_dir.to_owned(),
            runsc: None,
        };
        Gvisor::new(config)
            .await
            .expect("these tests need root and runsc on PATH")
    }
}

atoll_engine::conformance_tests!(GvisorLab);

/// A socket lives below the state folder, and the kernel limits its path to 107 bytes.
#[tokio::test]
async fn a_state_folder_deep_below_is_as_good_as_any() {
    let base = tempfile::tempdir().expect("a temporary folder");
    let deep = base
        .path()
        .join("a-folder-with-a-long-name/and-another-one-below-it/state");
    let engine = GvisorLab::engine(&deep).await;
    engine.probe().await.expect("a machine answers");
}
