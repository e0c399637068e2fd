//! The suite that every engine passes, on the fake. Needs root, for mounts and control groups.

use std::path::Path;

use atoll_engine::conformance::Lab;
use atoll_engine_fake::Fake;

struct FakeLab;

#[async_trait::async_trait]
impl Lab for FakeLab {
    type Engine = Fake;

    async fn engine(state_dir: &Path) -> Fake {
        Fake::new(state_dir).expect("these tests need root")
    }
}

atoll_engine::conformance_tests!(FakeLab);
