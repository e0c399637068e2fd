//! Makes a restored machine a new one.

use std::{cell::RefCell, fs, io::Write, rc::Rc};

use atoll_protocol::types::{GuestCode, GuestRefusal, ThawReply, ThawRequest};
use sha2::{Digest, Sha256};

use crate::{agent::Agent, refusal::refuse, view};

const ENTROPY_BYTES: usize = 32;
const POOL: &str = "/dev/urandom";
const MACHINE_ID: &str = "/etc/machine-id";

/// Takes a new identity. Whatever of it could not be done and matters is a refusal: the machine must not be used then.
pub(crate) async fn thaw(agent: &Rc<Agent>, request: ThawRequest) -> Result<ThawReply, GuestRefusal> {
    let entropy = hex::decode(&request.entropy)
        .ok()
        .filter(|entropy| entropy.len() >= ENTROPY_BYTES);
    let Some(entropy) = entropy else {
        return Err(refuse(GuestCode::Invalid, "entropy must be 64 hexadecimal digits"));
    };
    let failed = |what: &str, error: &dyn std::fmt::Display| refuse(GuestCode::Internal, format!("{what}: {error}"));
    // A kernel that draws from its host ignores this; one that was restored itself needs it.
    let pool = fs::OpenOptions::new().write(true).open(POOL);
    pool.and_then(|mut pool| pool.write_all(&entropy))
        .map_err(|error| failed(POOL, &error))?;
    set_identity(&request)?;
    agent.guard.set_limits(request.memory_mb, request.pids);
    agent
        .group
        .set_limit(request.pids)
        .map_err(|error| failed("limit of processes", &error))?;
    if agent.group.is_ours() {
        view::show(request.cpu, request.memory_mb).map_err(|error| failed("size of the machine", &error))?;
    }
    agent.spill.set_memory(agent.guard.limit_bytes());
    agent.machine_env.replace(request.env.clone());
    agent.entropy.mix(&entropy);
    agent.contexts.thaw(agent).await?;
    let mut generation = agent.generation.borrow_mut();
    *generation += 1;
    Ok(ThawReply {
        generation: *generation,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Where the agent draws seeds for interpreters from. The kernel's own generator may have been restored with the machine,
/// so what the host sent goes into every seed.
#[derive(Debug, Default)]
pub(crate) struct Entropy(RefCell<[u8; ENTROPY_BYTES]>);

impl Entropy {
    fn mix(&self, fresh: &[u8]) {
        let mut state = self.0.borrow_mut();
        *state = Sha256::new().chain_update(*state).chain_update(fresh).finalize().into();
    }

    /// A seed that nobody else gets, as 64 hexadecimal digits.
    pub(crate) fn seed(&self) -> Result<String, GuestRefusal> {
        let mut fresh = [0; ENTROPY_BYTES];
        getrandom::fill(&mut fresh).map_err(|error| refuse(GuestCode::Internal, format!("random numbers: {error}")))?;
        self.mix(&fresh);
        Ok(hex::encode(
            Sha256::new()
                .chain_update(*self.0.borrow())
                .chain_update(b"seed")
                .finalize(),
        ))
    }
}

/// Host name and machine id, where the agent may set them. It may not where it is an ordinary process among others.
fn set_identity(request: &ThawRequest) -> Result<(), GuestRefusal> {
    if std::process::id() != 1 {
        return Ok(());
    }
    if let Err(error) = nix::unistd::sethostname(&request.hostname) {
        return Err(refuse(GuestCode::Internal, format!("host name: {error}")));
    }
    // Two machines of one template must not share it. A template without one goes without.
    if fs::exists(MACHINE_ID).unwrap_or(false) {
        let id = getrandom::u64().and_then(|high| Ok((high, getrandom::u64()?)));
        let (high, low) = id.map_err(|error| refuse(GuestCode::Internal, format!("random numbers: {error}")))?;
        if let Err(error) = fs::write(MACHINE_ID, format!("{high:016x}{low:016x}\n")) {
            eprintln!("atoll-agent: {MACHINE_ID}: {error}");
        }
    }
    Ok(())
}
