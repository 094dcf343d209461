//! demo
use super::Failure;
use clap::Args;
/// Demo
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[arg(long)]
    keep: bool,
}
pub(super) fn run(_: &Arguments) -> Result<(), Failure> {
    Ok(())
}
