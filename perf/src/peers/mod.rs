//! Everything that is measured, and what it is measured against.

pub mod farspan;
pub mod node;
pub mod raw;
pub mod stock;
pub mod synthetic;
