//! The `npamp-relay` command.

fn main() {}
