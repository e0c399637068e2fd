//! `doctor`: what works on this host, found out by trying.

use super::Context;
use crate::failure::Failure;

pub(crate) async fn run(context: &Context) -> Result<(), Failure> {
    context.screen.line("")
}
