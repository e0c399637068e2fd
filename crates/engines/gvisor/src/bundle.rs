//! The OCI bundle: what the guest is given.

use std::path::PathBuf;

use atoll_engine::{GUEST_DIR, MachinePlan};
use oci_spec::{
    OciSpecError,
    runtime::{
        Capability, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxNamespaceBuilder, LinuxNamespaceType, Mount,
        MountBuilder, PosixRlimitBuilder, PosixRlimitType, ProcessBuilder, RootBuilder, Spec, SpecBuilder, UserBuilder,
    },
};

/// Files that a process of the guest may have open. What programs ask for at most; gVisor's own ceiling.
const OPEN_FILES: u64 = 1 << 20;

/// When the host runs out of memory, machines go before the server and everything else of the host.
const OOM_SCORE: i32 = 500;

/// What the guest's root may do. These are rights inside gVisor's kernel and give none on the host. Left out is what has no
/// meaning there (modules, raw hardware, the host's clock and logs).
const CAPABILITIES: [Capability; 22] = [
    Capability::AuditWrite,
    Capability::Chown,
    Capability::DacOverride,
    Capability::DacReadSearch,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::IpcLock,
    Capability::IpcOwner,
    Capability::Kill,
    Capability::Lease,
    Capability::Mknod,
    Capability::NetAdmin,
    Capability::NetBindService,
    Capability::NetRaw,
    Capability::Setfcap,
    Capability::Setgid,
    Capability::Setpcap,
    Capability::Setuid,
    Capability::SysAdmin,
    Capability::SysChroot,
    Capability::SysPtrace,
    Capability::SysResource,
];

/// The specification of a machine whose process 1 is `argv`.
///
/// It is the same for a snapshot and all that is restored from it but for the host name: newer `runsc` compare the two.
pub(crate) fn spec(plan: &MachinePlan, argv: &[String]) -> Result<Spec, OciSpecError> {
    let capabilities = LinuxCapabilitiesBuilder::default()
        .bounding(CAPABILITIES)
        .effective(CAPABILITIES)
        .permitted(CAPABILITIES)
        .build()?;
    let open_files = PosixRlimitBuilder::default()
        .typ(PosixRlimitType::RlimitNofile)
        .soft(OPEN_FILES)
        .hard(OPEN_FILES)
        .build()?;
    let process = ProcessBuilder::default()
        .user(UserBuilder::default().uid(0_u32).gid(0_u32).build()?)
        .args(argv)
        .env(["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()])
        .cwd("/")
        .capabilities(capabilities)
        .rlimits([open_files])
        // sudo must work inside, where `runsc` can (see `Runsc::command`): what it becomes is root of gVisor's kernel only.
        .no_new_privileges(false)
        .oom_score_adj(OOM_SCORE)
        .build()?;
    let root = RootBuilder::default()
        .path(plan.rootfs.clone())
        .readonly(false)
        .build()?;
    SpecBuilder::default()
        .version("1.0.2")
        .process(process)
        .root(root)
        .hostname(plan.hostname.clone())
        .mounts(mounts(plan)?)
        .linux(LinuxBuilder::default().namespaces(namespaces()?).build()?)
        .build()
}

fn mounts(plan: &MachinePlan) -> Result<Vec<Mount>, OciSpecError> {
    let new = |kind: &str, at: &str| MountBuilder::default().typ(kind).source(kind).destination(at).build();
    let agent = MountBuilder::default()
        .typ("bind")
        .source(plan.guest_dir.clone())
        .destination(PathBuf::from(GUEST_DIR))
        .options(["ro".to_owned(), "rbind".to_owned()])
        .build()?;
    Ok(vec![
        new("proc", "/proc")?,
        new("sysfs", "/sys")?,
        new("tmpfs", "/dev")?,
        new("devpts", "/dev/pts")?,
        new("tmpfs", "/dev/shm")?,
        // gVisor's own control groups, not the host's: see `GUEST_PIDS_GROUP`.
        new("cgroup", "/sys/fs/cgroup")?,
        agent,
    ])
}

fn namespaces() -> Result<Vec<oci_spec::runtime::LinuxNamespace>, OciSpecError> {
    let kinds = [
        LinuxNamespaceType::Pid,
        LinuxNamespaceType::Ipc,
        LinuxNamespaceType::Uts,
        LinuxNamespaceType::Mount,
        LinuxNamespaceType::Network,
    ];
    kinds
        .into_iter()
        .map(|kind| LinuxNamespaceBuilder::default().typ(kind).build())
        .collect()
}
