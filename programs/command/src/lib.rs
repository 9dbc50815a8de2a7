//! What the command lines of the programs share: `--completions` and `--print-config`, variables
//! that stand for options, and the codes with which a program ends.

use std::error::Error;
use std::fmt;
use std::io::{Write, stdout};
use std::process::{ExitCode, exit};

use clap::builder::{BoolValueParser, EnumValueParser, Resettable, TypedValueParser};
use clap::{Arg, ArgAction, Command, Parser};
use clap_complete::{Shell, generate};

/// The parts of `--help`: the usual ones of clap, after a line with the name.
const HELP: &str = "\
{name} {version}
{about-with-newline}
{usage-heading} {usage}

{all-args}{after-help}";

/// The last part of `--help`. `prove` has two more codes, and says so itself.
pub const EXIT_CODES: &str = "\
Exit codes:
  0   Success
  1   A failure, which the last line on stderr names
  2   A wrong option, variable or line of the input
  78  A wrong configuration file";

/// The reason why a program ends before it is done.
#[derive(Debug)]
pub enum Stop {
    /// An option, a variable or a line of the input is wrong.
    Asked(String),
    /// A configuration file is wrong.
    Config(String),
    /// Something failed on the way.
    Failed(Box<dyn Error + Send + Sync>),
    /// Standard output was closed.
    Unread,
}

impl Stop {
    /// The exit code, as `EXIT_CODES` says. 78 is `EX_CONFIG` of `sysexits.h`, which systemd names.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Unread => 0,
            Self::Failed(_) => 1,
            Self::Asked(_) => 2,
            Self::Config(_) => 78,
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(reason) | Self::Config(reason) => f.write_str(reason),
            // With its causes, where it is an error of the crate.
            Self::Failed(error) => write!(f, "{error:#}"),
            Self::Unread => f.write_str("nobody reads on"),
        }
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Returns the exit code of a program, and writes the reason to stderr if it was not done.
pub fn ended(name: &str, result: Result<(), Stop>) -> ExitCode {
    let Err(stop) = result else { return ExitCode::SUCCESS };
    eprintln!("{name}: {stop}");
    ExitCode::from(stop.code())
}

/// Reads the command line and the variables of its options. An empty variable counts as absent. Of
/// a program with a configuration, `example` is one with comments.
///
/// Ends the process if something is wrong, or only a text is asked for.
#[must_use]
pub fn parse<O: Parser>(example: Option<&'static str>) -> O {
    let matches = command::<O>(example).get_matches();
    O::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The options of a program, and those of all. These act where they stand, as `--help` does: no
/// other option need be there.
fn command<O: Parser>(example: Option<&'static str>) -> Command {
    let shell = EnumValueParser::<Shell>::new().map(move |shell| {
        let (mut command, mut text) = (command::<O>(example), Vec::new());
        let name = command.get_name().to_owned();
        generate(shell, &mut command, name, &mut text);
        print(&text);
    });
    let completions = Arg::new("completions").long("completions").value_name("SHELL");
    let completions = completions.help("Print completions for a shell").value_parser(shell);
    let print_config = example.map(|example| {
        let asked = BoolValueParser::new().map(|asked| asked.then(|| print(example.as_bytes())));
        let option = Arg::new("print-config").long("print-config").action(ArgAction::SetTrue);
        option.help("Print an example of the configuration, with comments").value_parser(asked)
    });
    let is_empty =
        |arg: &Arg| arg.get_env().and_then(std::env::var_os).is_some_and(|set| set.is_empty());
    O::command()
        .help_template(HELP)
        .mut_args(|arg| if is_empty(&arg) { arg.env(Resettable::Reset) } else { arg })
        .next_help_heading(None)
        .args(print_config)
        .arg(completions)
}

/// Writes to standard output, as long as somebody reads it, and ends the process.
fn print(text: &[u8]) {
    let _ = stdout().write_all(text);
    exit(0)
}
