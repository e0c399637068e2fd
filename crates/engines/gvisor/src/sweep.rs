//! Taking away everything that a machine has on the host, in whatever state it is; and finding what there is.

use std::{collections::BTreeSet, io};

use atoll_engine::EngineError;
use atoll_model::MachineId;

use crate::{Shared, disks::Disks, folder::host};

/// Ends a machine and removes all of it. Each step is done whether or not there is something for it to do.
pub(crate) async fn machine(shared: &Shared, id: &MachineId) -> Result<(), EngineError> {
    let turn = shared.turns.take(id).await;
    // First the processes: everything else is theirs.
    let group = shared.cgroups.group(id.as_str());
    group
        .destroy()
        .await
        .map_err(host(format!("ending the processes of machine {id}")))?;
    let folder = shared.folder(id);
    let remove = move || {
        Disks::detach(&folder)?;
        match std::fs::remove_dir_all(folder.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    };
    let removed = tokio::task::spawn_blocking(move || (remove(), turn)).await;
    let (result, turn) = removed.map_err(|error| host("removing a machine's folder")(io::Error::other(error)))?;
    result.map_err(host(format!("removing the folder of machine {id}")))?;
    shared.turns.forget(id, turn);
    Ok(())
}

/// Every machine that has a folder or a control group; a mount is always inside its folder.
pub(crate) fn inventory(shared: &Shared) -> Result<Vec<MachineId>, EngineError> {
    let list = || {
        let mut names: BTreeSet<String> = shared.cgroups.names()?;
        for entry in std::fs::read_dir(&shared.machines)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    };
    let names = list().map_err(host("listing machines"))?;
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}
