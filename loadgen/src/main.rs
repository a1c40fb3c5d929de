//! The `npamp-loadgen` command.

fn main() {}
