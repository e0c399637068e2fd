//! The suite that every engine passes, on gVisor. Needs root and `runsc`, and fails without them: it is never skipped.

use std::path::Path;

use atoll_engine::conformance::Lab;
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
