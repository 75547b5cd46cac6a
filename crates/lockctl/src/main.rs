//! `lockctl`: distributed locks from a shell.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use serde::Serialize;
use tokio::runtime::Builder;

mod acl;
mod audit;
mod cli;
mod connection;
mod exit;
mod force;
mod glob;
mod list;
mod messages;
#[cfg(unix)]
mod run;
mod show;
mod text;
mod watch;

use cli::{Cli, Command, OutputArgs};
use exit::{Exit, Failure};

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(code) = run::trampoline(env::args_os()) {
        messages::finish();
        return ExitCode::from(code);
    }
    let cli = match parsed() {
        Ok(cli) => cli,
        Err(error) => {
            // An error is ignored: if this cannot be written, no message about it can.
            let _ = error.print();
            return match error.use_stderr() {
                true => ExitCode::from(Exit::Usage as u8),
                false => ExitCode::SUCCESS,
            };
        }
    };
    let code = command(&cli).unwrap_or_else(|failure| failure.report());
    messages::finish();
    ExitCode::from(code)
}

/// The command line. An environment variable that is empty counts as one that is not set.
fn parsed() -> Result<Cli, clap::Error> {
    let is_empty = |name: &OsStr| env::var_os(name).is_some_and(|value| value.is_empty());
    let command = Cli::command().mut_args(|arg| match arg.get_env().is_some_and(is_empty) {
        true => arg.env(None::<&str>),
        false => arg,
    });
    Cli::from_arg_matches(&command.try_get_matches()?)
}

/// Runs the command, and returns the exit code.
///
/// The runtime has one thread, the main one: a command's parent is that thread, and lives as long as the process.
fn command(cli: &Cli) -> Result<u8, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::System, error.to_string()))?;
    let code = runtime.block_on(subcommand(cli));
    // Does not wait for a write to a reader that takes nothing.
    runtime.shutdown_background();
    code
}

async fn subcommand(cli: &Cli) -> Result<u8, Failure> {
    match &cli.command {
        #[cfg(unix)]
        Command::Run(args) => run::run(args, &cli.connection).await,
        Command::Show(args) => show::show(args, &cli.connection).await,
        Command::Ls(args) => list::ls(args, &cli.connection).await,
        Command::Watch(args) => watch::watch(args, &cli.connection).await,
        Command::Break(args) => force::break_lock(args, &cli.connection).await,
        Command::Audit(args) => audit::audit(args, &cli.connection).await,
        Command::Acl(args) => acl::acl(args, &cli.connection),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "lockctl", &mut script);
            print(&script)
        }
    }
}

impl OutputArgs {
    /// Prints the value as a line of JSON if the user wants that, and else the text.
    fn print(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<u8, Failure> {
        let text = if self.json { json(value) } else { text() };
        print(text.as_bytes())
    }
}

/// One line of JSON.
fn json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("it has only texts for keys");
    text::harmless_json(&json) + "\n"
}

/// Writes to standard output. A closed pipe, as after `head`, is not an error.
fn print(text: &[u8]) -> Result<u8, Failure> {
    print_to_reader(text).map(|_| 0)
}

/// Writes to standard output. Returns whether it has a reader: not if it is a closed pipe.
fn print_to_reader(text: &[u8]) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(Exit::Output, format!("cannot write: {error}"))),
    }
}
