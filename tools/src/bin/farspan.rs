//! farspan, the program.
fn main() {}
