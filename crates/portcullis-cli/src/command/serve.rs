use crate::{ExitStatus, arguments::ServeArguments, hub, output};

/// Serves the client at standard input and output until it leaves. Nothing but the protocol is on standard output.
pub(crate) async fn run(arguments: ServeArguments) -> ExitStatus {
    let started = match hub::start(&arguments.hub).await {
        Ok(started) => started,
        Err(status) => return status,
    };
    let router = started.router();
    hub::run(started, async move {
        match portcullis_gateway::serve(router, tokio::io::stdin(), tokio::io::stdout()).await {
            Ok(()) => ExitStatus::Done,
            Err(error) => {
                output::error(&error.to_string());
                ExitStatus::Failed
            }
        }
    })
    .await
}
