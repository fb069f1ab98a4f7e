//! `portcullis blobs untag`.

use super::*;

#[derive(Serialize)]
struct UntaggedLine {
    name: String,
    untagged: u64,
}

pub(super) async fn run(
    arguments: &StoreArguments,
    name: TagName,
    blob: Option<BlobRef>,
) -> Result<ExitStatus, Refused> {
    let store = arguments.open()?;
    let untagged = store.untag(name.clone(), blob).await?;
    if untagged == 0 {
        return Err(Refused::NoTag { name, blob });
    }
    match arguments.format {
        Format::Json => output::json(&UntaggedLine {
            name: name.to_string(),
            untagged,
        }),
        Format::Text => output::line(&format!("{untagged} tags called {name} let go")),
    }
    Ok(ExitStatus::Done)
}
