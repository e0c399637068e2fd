//! Templates as callers see them, and the one that a create is made from.

use std::sync::Arc;

use atoll_model::{ErrorCode, Refusal, Scope, TemplateName};
use atoll_template::{BakedTemplate, TemplateInfo};

use crate::{Caller, Control, TemplateView};

impl Control {
    /// The templates of this host in the order of their names; they are every workspace's.
    ///
    /// # Errors
    /// `Forbidden`.
    pub async fn template_list(&self, caller: &Caller) -> Result<Vec<TemplateView>, Refusal> {
        caller.require(Scope::ReadOnly)?;
        Ok(self.inner.templates.list().into_iter().map(view).collect())
    }

    /// The template of a name or alias.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn template_get(&self, caller: &Caller, name: &str) -> Result<TemplateView, Refusal> {
        caller.require(Scope::ReadOnly)?;
        let found = self.inner.templates.get(name);
        found.map(view).ok_or_else(|| Refusal::not_found("template"))
    }

    /// The name behind a name or alias.
    pub(crate) fn template_name(&self, wanted: &str) -> Result<TemplateName, Refusal> {
        Ok(self.template(wanted)?.name)
    }

    /// What a create of that name or alias is restored from.
    pub(crate) fn baked(&self, wanted: &str) -> Result<Arc<BakedTemplate>, Refusal> {
        let template = self.template(wanted)?;
        let not_ready = |why: &str| {
            let sentence = format!(
                "the template {} {why}; try again once `atoll template ls` shows it as built",
                template.name
            );
            Err(Refusal::new(ErrorCode::NoCapacity, sentence).retry_after(10))
        };
        match template.baked {
            Some(baked) if self.can_restore(&baked) => Ok(baked),
            Some(_) => not_ready("was built for another engine or another version of it"),
            None => not_ready("is not built yet"),
        }
    }

    /// Whether a create of any template would be tried.
    pub(crate) fn any_template_ready(&self) -> bool {
        let ready = |template: &TemplateInfo| template.baked.as_deref().is_some_and(|baked| self.can_restore(baked));
        self.inner.templates.list().iter().any(ready)
    }

    /// A snapshot is bound to the engine that took it, to the version.
    fn can_restore(&self, baked: &BakedTemplate) -> bool {
        let engine = &self.inner.engine;
        baked.engine == engine.name() && baked.engine_version == engine.capabilities().version
    }

    fn template(&self, wanted: &str) -> Result<TemplateInfo, Refusal> {
        self.inner.templates.get(wanted).ok_or_else(|| {
            // The text that clients know (pandastack-v1 §2.2), without echoing more than a name's length.
            let shown: String = wanted.chars().filter(|c| !c.is_control()).take(64).collect();
            Refusal {
                field: Some("template".to_owned()),
                ..Refusal::new(
                    ErrorCode::TemplateUnknown,
                    format!("template {shown:?} is not in the template catalog"),
                )
            }
        })
    }
}

fn view(template: TemplateInfo) -> TemplateView {
    TemplateView {
        name: template.name,
        aliases: template.aliases.iter().map(ToString::to_string).collect(),
        description: template.description,
        cpu: template.limits.cpu,
        memory_mb: template.limits.memory_mb,
        disk_mb: template.limits.disk_mb,
        size_bytes: template.baked.as_ref().map(|baked| baked.bytes),
        bake: template.baked.map(|baked| baked.digest.to_string()),
    }
}
