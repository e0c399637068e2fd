//! Process 1 of a sandbox.

fn main() {}
