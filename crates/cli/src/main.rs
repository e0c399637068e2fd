//! The binary: serve, run, and the rest on the HTTP API.

fn main() {}
