//! Creating a sandbox: two store writes, one engine call, one round trip to the guest.

use std::{sync::Arc, time::Duration};

use atoll_engine::Capabilities;
use atoll_model::{
    ErrorCode, GoneReason, Isolation, Limits, Refusal, SandboxId, SandboxSpec, Scope, State, WorkspaceId,
    limits::DEFAULT_TTL_SECONDS,
};
use atoll_store::{Idempotency, Inserted, Origin, SandboxRow};
use atoll_template::BakedTemplate;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout_at},
};

use crate::{
    Caller, Control, CreateSandbox, SandboxView,
    actor::{Actor, Begin, MAILBOX, Message},
    admission::Admitted,
    boot::Plan,
    check::{check_env, check_short, check_strings, check_ttl},
    live::{Live, Status},
    metrics::bump,
    refusal, view,
};

/// The template of a create that names none (pandastack-v1 §2.1).
const DEFAULT_TEMPLATE: &str = "code-interpreter";
/// How long after its deadline a create is answered at the latest; until then its remains are removed.
const ANSWERED_AFTER: Duration = Duration::from_secs(2);
/// Metadata that callers can't set (pandastack-v1 §4.2).
const RESERVED_METADATA: [&str; 3] = ["workspace", "kind", "app.id"];

/// A create that is yet to be recorded.
pub(crate) struct NewSandbox {
    plan: Plan,
    /// When it must run.
    deadline: Instant,
    idempotency: Option<Idempotency>,
    answer: oneshot::Sender<Result<Recorded, Refusal>>,
}

/// What came of recording a create.
pub(crate) enum Recorded {
    /// The sandbox is this actor's to bring up.
    New(Arc<Live>),
    /// An earlier create with the same idempotency key.
    Earlier(SandboxId),
}

impl Actor {
    /// Records the create; `None` when there is nothing to bring up.
    pub(crate) async fn insert(&mut self, new: NewSandbox) -> Option<(Plan, Instant)> {
        let row = self.status.borrow().row.clone();
        let store = &self.control.inner.store;
        let inserted = store.sandbox_insert(&row, new.idempotency.as_ref()).await;
        let recorded = match inserted {
            Ok(Inserted::New) => Ok(Recorded::New(Arc::clone(&self.live))),
            Ok(Inserted::Earlier(earlier)) if earlier.same_request => Ok(Recorded::Earlier(earlier.sandbox)),
            Ok(Inserted::Earlier(_)) => Err(other_request()),
            Err(error) => Err(refusal::of_store(&error)),
        };
        let is_new = matches!(recorded, Ok(Recorded::New(_)));
        // Whether the caller still waits does not matter from here on.
        let _ = new.answer.send(recorded);
        is_new.then_some((new.plan, new.deadline))
    }
}

impl Control {
    /// Makes a sandbox and answers once it runs. Once it is recorded it no longer depends on the caller: a caller who goes
    /// away finds it in the list. Every error means that nothing was created and nothing is left, or, when it comes because time
    /// ran out, that what was begun is being removed. The answer comes before the known clients give up.
    ///
    /// # Errors
    /// `InvalidRequest`, `TemplateUnknown`, `IsolationUnavailable`, `Conflict` (an idempotency key with another request);
    /// `NoCapacity` and `InsufficientStorage` with `retry_after`; `Forbidden`; `Internal`.
    pub async fn sandbox_create(&self, caller: &Caller, wanted: CreateSandbox) -> Result<SandboxView, Refusal> {
        let began = Instant::now();
        caller.require(Scope::Full)?;
        if self.inner.stopping.is_cancelled() {
            return Err(refusal::shutting_down());
        }
        let idempotency = idempotency(&wanted)?;
        let template = self.baked(wanted.template.as_deref().unwrap_or(DEFAULT_TEMPLATE))?;
        let capabilities = self.inner.engine.capabilities();
        check_isolation(wanted.isolation, capabilities)?;
        let spec = spec(wanted, &template)?;
        let row = SandboxRow {
            id: SandboxId::random(),
            workspace: caller.workspace,
            state: State::Creating,
            spec,
            origin: self.origin(&template),
            boot_ms: None,
            gone: None,
            failure: None,
            created_at: now_to_the_millisecond(),
            ended_at: None,
        };
        let deadline = began + self.inner.config.create_timeout;
        let plan = Plan::of(&template);
        let recorded = timeout_at(deadline + ANSWERED_AFTER, async {
            match self.existing(caller.workspace, idempotency.as_ref()).await? {
                Some(earlier) => Ok(Recorded::Earlier(earlier)),
                None => self.record_create(row, plan, deadline, idempotency).await,
            }
        });
        // A create that is recorded so late finds its deadline passed, and is undone.
        let recorded = recorded.await.unwrap_or_else(|_| Err(refusal::create_too_slow()))?;
        let row = timeout_at(deadline + ANSWERED_AFTER, async {
            match &recorded {
                Recorded::New(live) => live.created().await,
                Recorded::Earlier(id) => self.earlier(caller, *id).await,
            }
        });
        let row = row.await.unwrap_or_else(|_| {
            if let Recorded::New(live) = &recorded {
                // Told as failed, so it must not live. A full or closed mailbox means that its end is under way.
                let _under_way = live.mailbox.try_send(Message::Stop(GoneReason::CreateFailed));
            }
            Err(refusal::create_too_slow())
        })?;
        self.inner.metrics.creates.observe(began.elapsed());
        Ok(view::sandbox(row))
    }

    /// Whether an earlier create used this idempotency key. Asked before room is asked for, so that a repeated create of a
    /// sandbox that runs is answered on a full host, too.
    async fn existing(
        &self,
        workspace: WorkspaceId,
        idempotency: Option<&Idempotency>,
    ) -> Result<Option<SandboxId>, Refusal> {
        let Some(wanted) = idempotency else { return Ok(None) };
        let earlier = self.inner.store.idempotency_get(workspace, wanted).await;
        match earlier.map_err(|error| refusal::of_store(&error))? {
            None => Ok(None),
            Some(earlier) if earlier.same_request => Ok(Some(earlier.sandbox)),
            Some(_) => Err(other_request()),
        }
    }

    /// Starts the actor that records the create: the caller may go away between any two steps.
    async fn record_create(
        &self,
        row: SandboxRow,
        plan: Plan,
        deadline: Instant,
        idempotency: Option<Idempotency>,
    ) -> Result<Recorded, Refusal> {
        let admitted = self
            .inner
            .admission
            .admit(row.spec.limits.disk_mb)
            .inspect_err(|_| bump(&self.inner.metrics.creates_refused))?;
        let (answer, recorded) = oneshot::channel();
        // Among the live ones first: whoever reads the record finds its actor.
        let actor = self.actor(row, admitted);
        let live = Arc::clone(&actor.live);
        let new = NewSandbox {
            plan,
            deadline,
            idempotency,
            answer,
        };
        self.inner.tasks.spawn(actor.own(Begin::Create(Box::new(new))));
        recorded.await.unwrap_or_else(|_| Err(live.ownerless()))
    }

    /// An actor for a sandbox, and its place among the live ones.
    pub(crate) fn actor(&self, row: SandboxRow, admitted: Admitted) -> Actor {
        let (mail, mailbox) = mpsc::channel(MAILBOX);
        let recorded = row.state;
        let status = Status {
            row,
            link: None,
            refusal: None,
            swept: false,
        };
        let (status, seen) = watch::channel(status);
        let live = Live::new(
            &status.borrow().row,
            seen,
            mail,
            self.inner.config.max_calls_per_sandbox,
            self.inner.stopping.clone(),
        );
        let live = Arc::new(live);
        self.inner.live.insert(&live);
        Actor {
            control: self.clone(),
            live,
            status,
            mailbox,
            admitted,
            recorded,
        }
    }

    /// The sandbox of an earlier create, once that create is through.
    async fn earlier(&self, caller: &Caller, id: SandboxId) -> Result<SandboxRow, Refusal> {
        match self.inner.live.get(caller.workspace, id) {
            Some(live) => live.created().await,
            None => Err(self.why_not_live(caller, id).await?),
        }
    }

    fn origin(&self, template: &BakedTemplate) -> Origin {
        Origin {
            bake: template.digest.to_string(),
            engine: self.inner.engine.name().to_owned(),
            isolation: self.inner.engine.capabilities().isolation,
        }
    }
}

/// Time as the store keeps it, so that a view does not change when it is read again.
fn now_to_the_millisecond() -> OffsetDateTime {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(now.millisecond() as u32 * 1_000_000)
        .unwrap_or(now)
}

fn other_request() -> Refusal {
    Refusal {
        field: Some("idempotency_key".to_owned()),
        ..Refusal::new(
            ErrorCode::Conflict,
            "this idempotency_key was used for a create with other fields; use another key",
        )
    }
}

/// The key, and a digest of everything else in the request.
fn idempotency(wanted: &CreateSandbox) -> Result<Option<Idempotency>, Refusal> {
    let Some(key) = &wanted.idempotency_key else {
        return Ok(None);
    };
    check_short("idempotency_key", key)?;
    let rest = CreateSandbox {
        idempotency_key: None,
        ..wanted.clone()
    };
    let text = serde_json::to_vec(&rest).map_err(|error| refusal::internal("a create can't be compared", &error))?;
    Ok(Some(Idempotency {
        key: key.clone(),
        request: Sha256::digest(text).into(),
    }))
}

fn check_isolation(wanted: Option<Isolation>, capabilities: &Capabilities) -> Result<(), Refusal> {
    match wanted {
        Some(Isolation::None) => Err(Refusal::field("isolation", "isolation must be kernel or vm")),
        Some(level) if level > capabilities.isolation => Err(Refusal {
            field: Some("isolation".to_owned()),
            ..Refusal::new(
                ErrorCode::IsolationUnavailable,
                format!(
                    "this host isolates at the level {}, not {}; ask for that level or use another host",
                    capabilities.isolation.as_str(),
                    level.as_str()
                ),
            )
        }),
        _ => Ok(()),
    }
}

fn spec(wanted: CreateSandbox, template: &BakedTemplate) -> Result<SandboxSpec, Refusal> {
    let ttl_seconds = wanted.ttl_seconds.unwrap_or(DEFAULT_TTL_SECONDS);
    check_ttl(ttl_seconds)?;
    check_strings("metadata", &wanted.metadata)?;
    check_strings("labels", &wanted.labels)?;
    check_env(&wanted.env)?;
    let mut metadata = wanted.metadata;
    metadata.retain(|name, _| !RESERVED_METADATA.contains(&name.as_str()));
    let memory_mb = wanted.memory_mb.unwrap_or(template.limits.memory_mb);
    let limits = Limits {
        cpu: wanted.cpu.unwrap_or(template.limits.cpu),
        memory_mb,
        disk_mb: wanted.disk_mb.unwrap_or(template.limits.disk_mb),
        pids: template.limits.pids.min(Limits::processes_in(memory_mb)),
    };
    limits.check()?;
    Ok(SandboxSpec {
        template: template.name.clone(),
        ttl_seconds,
        persistent: wanted.persistent,
        metadata,
        labels: wanted.labels,
        env: wanted.env,
        limits,
        isolation: wanted.isolation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capabilities(isolation: Isolation) -> Capabilities {
        Capabilities {
            isolation,
            version: "test 1".into(),
            snapshot_running: true,
            memory_snapshot: true,
            pause: false,
            disk_limit: true,
            warnings: vec![],
        }
    }

    #[test]
    fn a_level_above_the_engines_is_refused_and_never_lowered() {
        let kernel = capabilities(Isolation::Kernel);
        assert_eq!(check_isolation(None, &kernel), Ok(()));
        assert_eq!(check_isolation(Some(Isolation::Kernel), &kernel), Ok(()));
        let refusal = check_isolation(Some(Isolation::Vm), &kernel).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::IsolationUnavailable);
        assert!(check_isolation(Some(Isolation::None), &kernel).is_err());
    }

    #[test]
    fn two_requests_are_the_same_when_all_but_the_key_is() {
        let create = |key: &str, ttl_seconds| CreateSandbox {
            idempotency_key: Some(key.to_owned()),
            ttl_seconds,
            ..CreateSandbox::default()
        };
        let digest = |wanted: &CreateSandbox| idempotency(wanted).unwrap().unwrap().request;
        assert_eq!(digest(&create("a", Some(1))), digest(&create("b", Some(1))));
        assert_ne!(digest(&create("a", Some(1))), digest(&create("a", None)));
        assert!(idempotency(&create("", None)).is_err());
    }
}
