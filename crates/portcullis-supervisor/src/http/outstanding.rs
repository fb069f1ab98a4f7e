use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use portcullis_wire::Id;
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage, RequestId};

use super::param::ParamCache;
use crate::{ticket::Ticket, transport::CallCap};

/// How many requests are remembered. Far more than are ever in flight at once: a request whose reply never comes
/// is forgotten when so many others have come after it.
const MOST: usize = 4_096;

/// The requests that wait for a reply, on whichever stream it comes.
#[derive(Default)]
pub(crate) struct Outstanding {
    waiting: Mutex<VecDeque<(RequestId, Waiting)>>,
    /// What the last listing says of headers.
    pub(crate) params: ParamCache,
}

/// What is known of a request that waits.
#[derive(Clone, Default)]
pub(crate) struct Waiting {
    /// Its result goes up as raw text.
    pub(crate) raw_result: bool,
    /// It lists tools.
    pub(crate) lists_tools: bool,
    /// The last event of the stream that answers it, where that has an id.
    pub(crate) last_event: Option<String>,
    /// What its caller is told through.
    pub(crate) ticket: Option<Arc<Ticket>>,
}

impl Outstanding {
    /// Remembers a request, or forgets a cancelled one.
    pub(crate) fn note(&self, message: &ClientJsonRpcMessage) {
        match message {
            JsonRpcMessage::Request(request) => {
                let waiting = Waiting {
                    raw_result: is_raw(&request.request),
                    lists_tools: matches!(request.request, ClientRequest::ListToolsRequest(_)),
                    last_event: None,
                    ticket: ticket(message).cloned(),
                };
                let mut all = self.lock();
                all.retain(|(id, _)| *id != request.id);
                if all.len() >= MOST {
                    all.pop_front();
                }
                all.push_back((request.id.clone(), waiting));
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.forget(id);
                }
            }
            _ => {}
        }
    }

    /// Takes the request that `id` answers. Some servers send a number's text back: `"7"` for `7`.
    pub(crate) fn claim(&self, id: &Id) -> Option<(RequestId, Waiting)> {
        let exact = match id {
            Id::Number(number) => RequestId::Number(*number),
            Id::String(text) => RequestId::String(text.as_str().into()),
        };
        self.take(&exact)
            .or_else(|| self.take(&RequestId::Number(id.as_number()?)))
    }

    /// Takes a request by its own id.
    pub(crate) fn take(&self, id: &RequestId) -> Option<(RequestId, Waiting)> {
        let mut all = self.lock();
        let at = all.iter().rposition(|(found, _)| found == id)?;
        all.remove(at)
    }

    /// Looks at a request without taking it.
    pub(crate) fn waiting(&self, id: &RequestId) -> Option<Waiting> {
        self.lock()
            .iter()
            .rfind(|(found, _)| found == id)
            .map(|(_, waiting)| waiting.clone())
    }

    /// The stream that answers a request came to this event.
    pub(crate) fn at_event(&self, asked: &RequestId, event: &str) {
        let mut all = self.lock();
        if let Some((_, waiting)) = all.iter_mut().rfind(|(found, _)| found == asked) {
            waiting.last_event = Some(event.to_owned());
        }
    }

    /// The request whose stream broke off after this event.
    pub(crate) fn broken_off_at(&self, event: &str) -> Option<RequestId> {
        let all = self.lock();
        let mut all = all.iter();
        all.rfind(|(_, waiting)| waiting.last_event.as_deref() == Some(event))
            .map(|(id, _)| id.clone())
    }

    pub(crate) fn forget(&self, id: &RequestId) {
        self.lock().retain(|(found, _)| found != id);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(RequestId, Waiting)>> {
        // No code panics while it holds the lock, and the queue is valid at every step.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ticket that travels with a call.
pub(crate) fn ticket(message: &ClientJsonRpcMessage) -> Option<&Arc<Ticket>> {
    match message {
        JsonRpcMessage::Request(request) => match &request.request {
            ClientRequest::CallToolRequest(call) => call.extensions.get::<Arc<Ticket>>(),
            _ => None,
        },
        _ => None,
    }
}

/// The longest that a call may take; none for what is no call.
pub(crate) fn cap(message: &ClientJsonRpcMessage) -> Option<Duration> {
    match message {
        JsonRpcMessage::Request(request) => match &request.request {
            ClientRequest::CallToolRequest(call) => call.extensions.get::<CallCap>().map(|CallCap(cap)| *cap),
            _ => None,
        },
        _ => None,
    }
}

fn is_raw(request: &ClientRequest) -> bool {
    matches!(
        request,
        ClientRequest::CallToolRequest(_) | ClientRequest::ListToolsRequest(_)
    )
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ListToolsRequest, PingRequest};

    use super::*;

    fn note(all: &Outstanding, request: ClientRequest, id: i64) {
        all.note(&ClientJsonRpcMessage::request(request, RequestId::Number(id)));
    }

    #[test]
    fn a_request_is_claimed_once_by_its_id_or_its_ids_text() {
        let all = Outstanding::default();
        note(
            &all,
            ClientRequest::ListToolsRequest(ListToolsRequest::default()),
            1,
        );
        note(&all, ClientRequest::PingRequest(PingRequest::default()), 2);
        assert!(all.claim(&Id::Number(3)).is_none());
        let (id, waiting) = all.claim(&Id::String("1".to_owned())).unwrap();
        assert_eq!((id, waiting.raw_result), (RequestId::Number(1), true));
        assert!(all.claim(&Id::Number(1)).is_none());
        assert!(!all.claim(&Id::Number(2)).unwrap().1.raw_result);
    }

    #[test]
    fn memory_is_bounded_and_the_newest_stay() {
        let all = Outstanding::default();
        for id in 0..5_000 {
            note(&all, ClientRequest::PingRequest(PingRequest::default()), id);
        }
        assert_eq!(all.lock().len(), MOST);
        assert!(all.claim(&Id::Number(4_999)).is_some());
        assert!(all.claim(&Id::Number(0)).is_none());
    }
}
