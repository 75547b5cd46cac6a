//! `lockctl audit`: what the deployment promises, and what weakens it.

use crate::cli::OutputArgs;
use crate::connection::Connection;
use crate::exit::{Failure, for_the_shell};
use crate::text::plain_lines;

pub(crate) async fn audit(args: &OutputArgs, connection: &Connection) -> Result<u8, Failure> {
    let mut audit = connection.client().await?.audit().await?;
    for warning in &mut audit.warnings {
        warning.text = for_the_shell(&warning.text);
    }
    args.print(&audit, || plain_lines(&audit.to_string()) + "\n")
}
