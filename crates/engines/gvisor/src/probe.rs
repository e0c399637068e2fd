//! Does it work here? Starts a real machine and listens.

use std::{path::PathBuf, sync::Arc, time::Duration};

use atoll_engine::{EngineError, MachinePlan};
use atoll_model::{BuildId, Limits, MachineId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    Shared,
    folder::host,
    start::{self, Origin},
    sweep, unusable,
};

/// How long the machine may take to answer; a healthy host needs a third of a second.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is said to it, and expected back.
const WORD: &[u8] = b"atoll\n";

/// Starts the host's own `cat` inside gVisor, on the host's own files (read-only, as every rootfs), and has it repeat a word.
pub(crate) async fn answer(shared: &Arc<Shared>) -> Result<(), EngineError> {
    let guest_dir = shared.machines.with_file_name("probe");
    std::fs::create_dir_all(&guest_dir).map_err(host("making the probe's folder"))?;
    let plan = MachinePlan {
        id: MachineId::bake(BuildId::random()),
        rootfs: PathBuf::from("/"),
        guest_dir,
        limits: Limits {
            cpu: 1,
            memory_mb: 128,
            disk_mb: 64,
            pids: 16,
        },
        hostname: "probe".to_owned(),
    };
    let id = plan.id.clone();
    let heard = tokio::time::timeout(PATIENCE, converse(shared, plan)).await;
    sweep::machine(shared, &id).await?;
    match heard {
        Ok(Ok(())) => Ok(()),
        Ok(Err(EngineError::Unusable { reason, .. })) => Err(unusable(reason)),
        Ok(Err(error)) => Err(unusable(format!("a machine was started to try it: {error}"))),
        Err(_) => Err(unusable(format!(
            "a machine was started to try it, and gave no answer within {} s",
            PATIENCE.as_secs()
        ))),
    }
}

async fn converse(shared: &Arc<Shared>, plan: MachinePlan) -> Result<(), EngineError> {
    let argv = ["/bin/cat".to_owned()].to_vec();
    let mut machine = start::machine_running(shared, plan, Origin::Cold, argv).await?;
    let mut heard = [0; WORD.len()];
    let talk = async {
        machine.port.write_all(WORD).await?;
        machine.port.read_exact(&mut heard).await
    };
    talk.await.map_err(host("talking to the machine"))?;
    if heard == WORD {
        Ok(())
    } else {
        Err(unusable(format!("the machine answered {heard:?}")))
    }
}
