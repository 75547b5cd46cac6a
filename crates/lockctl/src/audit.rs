//! `lockctl audit`: what the deployment promises, and what weakens it.

use crate::cli::OutputArgs;
use crate::connection::Connection;
use crate::exit::Failure;
use crate::text::plain_lines;

pub(crate) async fn audit(args: &OutputArgs, connection: &Connection) -> Result<u8, Failure> {
    let audit = connection.client().await?.audit().await?;
    args.print(&audit, || plain_lines(&audit.to_string()) + "\n")
}
