//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use clap_complete::Shell;
use humantime::parse_duration;
use tower_distributed_lock::LockMode;

use crate::connection::Connection;

const EXIT_CODES: &str = include_str!("help/exit_codes.txt").trim_ascii_end();
const EXAMPLES: &str = include_str!("help/examples.txt");
const RUN_EXAMPLES: &str = include_str!("help/run.txt");

/// Distributed locks from a shell: runs commands under a lock, and shows who holds one.
///
/// The locks are those of tower-distributed-lock and of Redisson, in Redis or Valkey.
#[derive(Debug, Parser)]
#[command(name = "lockctl", version, after_help = EXIT_CODES)]
#[command(after_long_help = format!("{EXAMPLES}\n{EXIT_CODES}"), max_term_width = 120)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while a lock is held
    #[cfg(unix)]
    #[command(after_help = EXIT_CODES, after_long_help = format!("{RUN_EXAMPLES}\n{EXIT_CODES}"))]
    Run(RunArgs),

    /// Show who holds a lock, and who waits for it
    Show(KeyArgs),

    /// List the locks that are held, or the records that are kept
    #[command(alias = "list")]
    Ls(ListArgs),

    /// Show a lock, and then whatever changes, until Ctrl-C
    Watch(WatchArgs),

    /// End the holds on a lock by force, after its name was typed
    Break(BreakArgs),

    /// Show what the deployment promises, and what weakens it
    Audit(OutputArgs),

    /// Print the rights that a Redis user needs, as rules for ACL SETUSER; asks no server
    #[command(alias = "acl-rules")]
    Acl(AclArgs),

    /// Print a script that completes the options of lockctl in a shell
    Completions { shell: Shell },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Name of the lock. It is a key in Redis: choose one that no data has, such as lock:report
    #[arg(long, value_name = "NAME", required_unless_present = "idempotency_key")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) key: Option<String>,

    /// How the lock is held
    #[arg(long, value_enum, default_value_t = Mode::Reentrant, requires = "key")]
    pub(crate) mode: Mode,

    /// How many commands may hold the lock at a time: each takes one of so many permits (RPermitExpirableSemaphore)
    #[arg(long, value_name = "NUMBER", conflicts_with = "mode", requires = "key")]
    #[arg(value_parser = value_parser!(u32).range(1..))]
    pub(crate) permits: Option<u32>,

    /// How long to wait for the lock, such as 10s; 0 tries once. Without it: as long as it takes. With --key and
    /// --idempotency-key, for both together
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) wait: Option<Duration>,

    /// How long the lock outlives lockctl. It is renewed every third of that
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "30s")]
    pub(crate) lease: Duration,

    /// Keep the lock for at least this long, even if the command ends sooner (and up to one lease longer), so that a short job runs
    /// on one machine although clocks differ
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "key")]
    pub(crate) hold_at_least: Option<Duration>,

    /// What becomes of the command when the lock is lost
    #[arg(long, value_enum, default_value_t = LossAction::Term)]
    pub(crate) on_lost: LossAction,

    /// How long after TERM the command is killed, at most half of the lease [default: a third of the lease, at most 10s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) grace: Option<Duration>,

    /// Exit code when the lock is busy, in place of 80
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) busy_code: Option<u8>,

    /// Show this text, the host and the process id beside the lock, in `lockctl show` and on the live page. Every user of the
    /// store can read them
    #[arg(long, value_name = "LABEL")]
    pub(crate) announce: Option<String>,

    /// Run the command once under this name; a repeat gets what it wrote, and its exit code. With --key, the command holds
    /// that lock as well
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) idempotency_key: Option<String>,

    /// How long the outcome is remembered
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1d")]
    #[arg(requires = "idempotency_key")]
    pub(crate) retention: Duration,

    /// Which outcomes are remembered. A command that was killed is never remembered
    #[arg(long, value_enum, default_value_t = Remember::Exit, requires = "idempotency_key")]
    pub(crate) remember: Remember,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Mode {
    /// Excludes all others (Redisson's RLock)
    Reentrant,
    /// Excludes all others; granted in the order of asking (RFairLock)
    Fair,
    /// Shares with other readers, excludes writers (RReadWriteLock)
    Read,
    /// Excludes readers and writers (RReadWriteLock)
    Write,
}

impl RunArgs {
    pub(crate) fn lock_mode(&self) -> LockMode {
        match self.permits {
            Some(limit) => LockMode::permits(limit),
            None => self.mode.into(),
        }
    }
}

impl From<Mode> for LockMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Reentrant => Self::Reentrant,
            Mode::Fair => Self::Fair,
            Mode::Read => Self::Read,
            Mode::Write => Self::Write,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LossAction {
    /// TERM before the lease is over, KILL after the grace
    Term,
    /// KILL when the lease is over
    Kill,
    /// The command goes on, and its exit code counts
    Ignore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Remember {
    /// Whatever its exit code
    Exit,
    /// Exit code 0; a repeat of a command that failed runs it again
    Success,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// Name of the lock
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) key: String,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Names to list: * stands for any characters, ? for one. Quote it
    #[arg(long = "match", value_name = "PATTERN", default_value = "*")]
    pub(crate) pattern: String,

    /// The records that commands and requests have left, in place of the locks
    #[arg(long)]
    pub(crate) records: bool,

    /// How many to list at most
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    pub(crate) limit: usize,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) key: KeyArgs,

    /// How often the store is asked
    #[arg(long, value_name = "DURATION", value_parser = interval, default_value = "1s")]
    pub(crate) interval: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct BreakArgs {
    #[command(flatten)]
    pub(crate) key: KeyArgs,

    /// Break it without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AclArgs {
    /// What the names of the locks begin with. Names with a hash tag of their own need a prefix up to the brace: order:{
    #[arg(required = true, value_name = "KEY-PREFIX")]
    pub(crate) prefixes: Vec<String>,

    /// Also what show, ls, watch and break need
    #[arg(long)]
    pub(crate) admin: bool,

    /// Also what a service needs that announces itself, and `run --announce`
    #[arg(long)]
    pub(crate) announce: bool,

    /// Also what audit needs, to see everything
    #[arg(long)]
    pub(crate) audit: bool,

    /// Also what a service needs that waits for replicas
    #[arg(long)]
    pub(crate) replicas: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Reads the time between two questions to the store.
fn interval(text: &str) -> Result<Duration, String> {
    let shortest = Duration::from_millis(10);
    match parse_duration(text).map_err(|error| error.to_string())? {
        long if long >= shortest => Ok(long),
        _ => Err(format!("that is too often: choose {shortest:?} or more")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_after_the_command_belong_to_it() {
        let line = ["lockctl", "run", "--key", "k", "--", "ls", "--url", "-x"];
        let Command::Run(args) = Cli::parse_from(line).command else {
            panic!("it is `run`");
        };
        assert_eq!(args.command, ["ls", "--url", "-x"]);
    }

    /// As from a variable that is not set.
    #[test]
    fn a_name_without_characters_is_refused() {
        for command in ["show", "watch", "break"] {
            assert!(Cli::try_parse_from(["lockctl", command, "k"]).is_ok());
            let refused = Cli::try_parse_from(["lockctl", command, ""]);
            assert!(refused.is_err(), "{command}");
        }
    }

    #[test]
    fn a_number_without_a_unit_is_no_duration_but_zero_is() {
        for (wait, parsed) in [
            ("0", Some(0)),
            ("1h30m", Some(5400)),
            ("10", None),
            ("-1s", None),
        ] {
            let wait = format!("--wait={wait}");
            let line = Cli::try_parse_from(["lockctl", "run", "--key", "k", &wait, "ls"]);
            let command = line.ok().map(|cli| cli.command);
            let read = command.map(|command| match command {
                Command::Run(args) => args.wait.expect("it is named").as_secs(),
                _ => panic!("it is `run`"),
            });
            assert_eq!(read, parsed, "{wait}");
        }
    }

    #[test]
    fn options_of_the_store_stand_before_a_subcommand_or_after_it() {
        for line in [
            ["lockctl", "--cluster", "acl", "a"],
            ["lockctl", "acl", "a", "--cluster"],
        ] {
            assert!(Cli::parse_from(line).connection.cluster);
        }
    }

    #[test]
    fn a_store_is_not_asked_without_a_pause() {
        assert_eq!(interval("10ms"), Ok(Duration::from_millis(10)));
        assert!(interval("0").is_err_and(|said| said.contains("10ms")));
    }
}
