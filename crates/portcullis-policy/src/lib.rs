//! The Cedar decision point: may this agent call this tool with these arguments? Allow, ask or deny, with reasons.
//!
//! Two Cedar actions make three answers. `call` not permitted: deny. `call` and `unattended` permitted: allow. Else:
//! ask. An evaluation error denies. The floor (a tool that requires user interaction, or whose auto-approve is off)
//! and a changed definition always ask a person, in Cedar and once more outside it.
//!
//! Deliberately absent: files, clocks, networks, an async runtime, and everything that carries a decision out. The
//! time is a parameter, the policies are texts, and who is asked is the caller's to know.
//!
//! ```
//! use portcullis_policy::{CallQuestion, DecisionPoint, PolicyFile, ToolFacts};
//! use portcullis_types::{AgentId, Answer, Tier};
//!
//! let rules = "default ask\nallow mcp.github.*\ndeny mcp.*.delete_*\n";
//! let policies = DecisionPoint::load(&[PolicyFile { name: "team.rules".into(), text: rules.into() }])?;
//!
//! // The definition comes from the server; what it does not say is taken at its worst.
//! let tool = ToolFacts::from_definition("mcp.github.delete_repo".parse()?, "stdio", r#"{"name":"delete_repo"}"#, true);
//! let agent = AgentId::default();
//! let decision = policies.decide(&CallQuestion {
//!     agent: &agent,
//!     profile: &agent,
//!     tier: Tier::RequestApproval,
//!     tool: &tool,
//!     arguments: r#"{"repo":"portcullis"}"#,
//!     now_ms: 1_790_000_000_000,
//! });
//! assert_eq!(decision.answer, Answer::Deny);
//! assert_eq!(decision.to_string(), "deny: a policy forbids the call; team.rules:3 (team.rules#L3)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod always;
mod arguments;
mod builtin;
mod cases;
mod decision_point;
mod depth;
mod error;
mod explain;
mod facts;
mod format;
mod index;
mod lint;
mod load;
mod model;
mod pattern;
mod prepared;
mod reload;
mod resolve;
mod rules;
mod seal;
mod source;
mod syntax;
mod verdict;

pub use always::AlwaysAllow;
pub use builtin::{Preset, SCHEMA};
pub use cases::{CaseFailure, CaseReport, Coverage, run_cases};
pub use decision_point::{CallQuestion, DecisionPoint, ElicitationQuestion, ServerAction, ServerQuestion};
pub use error::{PolicyError, PolicyErrors, PolicyProblem};
pub use explain::{Explanation, NearestPolicy};
pub use facts::{ToolFacts, ToolHints};
pub use format::{COMPILED_FOLDER, compiled_text, format_policies};
pub use lint::{Finding, Lint, lint};
pub use pattern::Pattern;
pub use prepared::PreparedTool;
pub use reload::{Reload, Reloaded};
pub use rules::compile_rules;
pub use seal::Seal;
pub use source::PolicyFile;
