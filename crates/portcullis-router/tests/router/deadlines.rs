//! How long things may take, whatever a host says.

use portcullis_testkit::{Behaviour, Tool};

use super::*;

fn echo() -> ServerSpec {
    scripted(&Script::new("s").tool(Tool::new("t", Behaviour::Echo)))
}

/// A time beyond all clocks is as good as none.
#[tokio::test]
async fn a_host_may_say_that_a_server_has_all_the_time_there_is() {
    let mut spec = echo();
    spec.timeouts = Timeouts::uniform(Duration::MAX);
    let rig = Rig::start_spec(spec, "allow mcp.s.*\n", None).await;
    rig.router.settled_within(Duration::MAX).await;
    rig.call("t", "{}").await.unwrap();
}
