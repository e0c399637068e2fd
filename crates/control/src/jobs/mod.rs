//! Work that no caller waits for. Each job is a struct whose `run` ends when the server stops; the tasks are owned by
//! [`ControlTasks`](crate::ControlTasks). The idle limit is no job: each sandbox's actor awaits its own deadline.

mod retention;

pub(crate) use retention::Retention;
