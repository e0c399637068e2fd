//! Checks and generators that make lint runs.

fn main() {}
