//! The host's end of the link: a typed client of the agent.
