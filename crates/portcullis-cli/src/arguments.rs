use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use portcullis::{
    AgentId, Preset, Tier,
    blobs::{BlobError, TagName},
};

use crate::{
    ExitStatus,
    command::{check::CheckArguments, import::ImportArguments, init::InitArguments},
};

/// Many MCP servers behind one door; the door is closed until a policy opens it.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version, disable_help_subcommand = true, after_help = exit_codes())]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

fn exit_codes() -> String {
    let each = ExitStatus::ALL.iter();
    let each = each.map(|status| format!("{} {}", *status as u8, status.describe().0));
    format!("Exit codes: {}.", each.collect::<Vec<_>>().join(", "))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the whole thing on built-in servers; nothing to install
    Demo(DemoArguments),
    /// Print what a configuration comes to, and all that is wrong with it
    Check(CheckArguments),
    /// Write a client's configuration as Portcullis' own, and say what became of each field
    Import(ImportArguments),
    /// Write a commented starting configuration and a folder of policies
    Init(InitArguments),
    /// List the servers and their tools, with what the policies say of each
    Tools(ToolsArguments),
    /// Call one tool
    Call(CallArguments),
    /// Check, explain, format, compile and seal policies
    Policy(crate::command::policy::PolicyArguments),
    /// Offer all servers as one MCP server
    Serve(ServeArguments),
    /// Show which calls run without a question for a while, and take that back
    Approvals(crate::command::approvals::ApprovalsArguments),
    /// Show which tools are trusted, how one differs, and approve the difference
    Pins(crate::command::pins::PinsArguments),
    /// Look at the store of results' binary content, and tidy it
    Blobs(crate::command::blobs::BlobsArguments),
    /// Be one of the demo's servers
    #[command(hide = true)]
    DemoServer {
        /// Which one
        name: String,
    },
}

/// How data is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// How to tell it; `json` gives events, one a line
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct HubArguments {
    /// Configuration files: Portcullis' own, or a client's with `mcpServers`
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,
    /// The folder of policies: its *.cedar and *.rules files [default: the configuration's, else none]
    #[arg(long, value_name = "DIR", conflicts_with = "preset")]
    pub(crate) policies: Option<PathBuf>,
    /// Refuse a folder of policies without a seal
    #[arg(long)]
    pub(crate) sealed: bool,
    /// Policies that come with the program, instead of the configuration's: deny-by-default, ask-by-default or
    /// read-only
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<Preset>,
    /// How freely agents may act: request_approval (as the policies say) or full_access (what they ask about runs, but
    /// for the floor and `always ask`); allow_edits and plan are as request_approval, unless a policy names them
    /// [default: the configuration's, else request_approval]
    #[arg(long)]
    pub(crate) tier: Option<Tier>,
    /// Who calls, for policies that tell agents apart
    #[arg(long, value_name = "AGENT")]
    pub(crate) r#as: Option<AgentId>,
    /// The folder for results' binary content [default: $XDG_DATA_HOME/portcullis/blobs, else
    /// ~/.local/share/portcullis/blobs]
    #[arg(long, value_name = "DIR")]
    pub(crate) blobs: Option<PathBuf>,
    /// Keep what this run stores under the name `session:ID`, so that no collection takes it for as long as the
    /// configuration's `blobs.sessionSeconds` says; for good by default
    #[arg(long, value_name = "ID", value_parser = session)]
    pub(crate) session: Option<TagName>,
    /// The folder for what outlives a run, such as which tools were trusted [default: $XDG_DATA_HOME/portcullis,
    /// else ~/.local/share/portcullis]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Ask about tools that were never seen before, instead of trusting them as they are
    #[arg(long)]
    pub(crate) ask_new_tools: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ToolsArguments {
    #[command(flatten)]
    pub(crate) hub: HubArguments,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct CallArguments {
    /// What to call: mcp.SERVER.TOOL, or its alias
    pub(crate) capability: String,
    /// The arguments: a JSON object, decided upon and sent word for word
    #[arg(default_value = "{}", value_name = "JSON")]
    pub(crate) arguments: String,
    #[command(flatten)]
    pub(crate) hub: HubArguments,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Serve the client at standard input and output
    #[arg(long, required = true)]
    pub(crate) stdio: bool,
    /// How long the client's first listing of tools waits for servers that are slow to start; of what comes later it is
    /// told, and not every client listens. A call of a name that no server has yet waits as long
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=300))]
    pub(crate) wait: u64,
    #[command(flatten)]
    pub(crate) hub: HubArguments,
}

fn session(id: &str) -> Result<TagName, BlobError> {
    TagName::session(id)
}
