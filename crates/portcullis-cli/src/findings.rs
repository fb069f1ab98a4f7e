//! What was found in documents, printed with the lines that it is about.

use std::path::PathBuf;

use clap::Args;
use portcullis::{
    Diagnostic, Document, HubError,
    config::{Dialect, Excerpts, Options},
    read_documents,
};

use crate::output;

/// How documents are to be read.
#[derive(Debug, Args)]
pub(crate) struct ReadArguments {
    /// Whose shape the files have, where their shape does not tell: portcullis, code, mcp-servers (also
    /// claude-desktop, claude-code, cursor, cline, windsurf), vscode, zed, codex, gemini, opencode, goose, assets
    #[arg(long, value_name = "DIALECT")]
    pub(crate) from: Option<Dialect>,
    /// The folder that `${workspaceFolder}` means
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
}

impl ReadArguments {
    /// The documents, and what they are to be judged by.
    pub(crate) fn read(&self, files: &[PathBuf]) -> Result<(Vec<Document>, Options), HubError> {
        let mut documents = read_documents(files)?;
        if let Some(dialect) = self.from {
            documents = documents
                .into_iter()
                .map(|document| document.in_dialect(dialect))
                .collect();
        }
        let workspace = self.workspace.as_ref();
        let options = Options {
            workspace_folder: workspace
                .map(|folder| std::path::absolute(folder).unwrap_or_else(|_| folder.clone())),
            trace: true,
            ..Options::default()
        };
        Ok((documents, options))
    }
}

/// Prints each finding with its line; in colours where a person looks on.
pub(crate) fn print(documents: &[Document], found: &[Diagnostic], options: &Options) {
    if found.is_empty() {
        return;
    }
    let colour = output::is_coloured(&std::io::stderr());
    let excerpts: Vec<_> = documents
        .iter()
        .map(|document| (document.name.as_str(), Excerpts::new(document, options)))
        .collect();
    for diagnostic in found {
        match excerpts.iter().find(|(name, _)| *name == diagnostic.file) {
            Some((_, excerpts)) => output::note(&excerpts.render(diagnostic, colour)),
            None => output::note(&diagnostic.to_string()),
        }
    }
}
