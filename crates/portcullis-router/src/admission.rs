use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use portcullis_config::Limits;
use portcullis_types::{CapabilityId, ServerId};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use crate::error::CallError;

/// Bounds what is on its way to each server. Mailboxes and queues below are unbounded and rely on it.
#[derive(Debug)]
pub(crate) struct Admission(HashMap<ServerId, Arc<Door>>);

#[derive(Debug)]
struct Door {
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// The most that may wait; beyond it a call is refused as busy.
    most_waiting: usize,
}

impl Admission {
    /// The doors of these servers, each by its own limits.
    pub(crate) fn new<'a>(servers: impl Iterator<Item = (&'a ServerId, Limits)>) -> Self {
        let size = |limit: u32| usize::try_from(limit).unwrap_or(usize::MAX);
        let door = |limits: Limits| {
            Arc::new(Door {
                permits: Arc::new(Semaphore::new(size(limits.calls_in_flight))),
                waiting: AtomicUsize::new(0),
                most_waiting: size(limits.calls_waiting),
            })
        };
        Self(
            servers
                .map(|(server, limits)| (server.clone(), door(limits)))
                .collect(),
        )
    }

    /// A place in flight, waiting for it until `deadline`.
    pub(crate) async fn enter(
        &self,
        capability: &CapabilityId,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, CallError> {
        let unknown = || CallError::UnknownServer {
            server: capability.server().clone(),
            known: Vec::new(),
        };
        let door = self.0.get(capability.server()).ok_or_else(unknown)?;
        if let Ok(permit) = Arc::clone(&door.permits).try_acquire_owned() {
            return Ok(permit);
        }
        let _place = Place::take(door, capability.server())?;
        let began = Instant::now();
        match timeout_at(deadline, Arc::clone(&door.permits).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(CallError::timed_out(capability, deadline - began)),
        }
    }
}

/// A place in the queue; left when it is dropped, whether the caller still waits or not.
struct Place<'a>(&'a Door);

impl<'a> Place<'a> {
    fn take(door: &'a Door, server: &ServerId) -> Result<Self, CallError> {
        let waiting = door.waiting.fetch_add(1, Ordering::AcqRel);
        let place = Self(door);
        if waiting < door.most_waiting {
            Ok(place)
        } else {
            Err(CallError::Busy {
                server: server.clone(),
                waiting,
            })
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_over_the_bounds_waits_its_time_or_is_busy() {
        let capability: CapabilityId = "mcp.a.x".parse().unwrap();
        let limits = Limits {
            calls_in_flight: 3,
            calls_waiting: 40,
            ..Limits::default()
        };
        let admission = Arc::new(Admission::new([(capability.server(), limits)].into_iter()));
        let soon = Instant::now() + Duration::from_secs(5);
        let mut inside = Vec::new();
        for _ in 0..3 {
            inside.push(admission.enter(&capability, soon).await.unwrap());
        }
        let waiting: Vec<_> = (0..40)
            .map(|_| {
                let (admission, capability) = (Arc::clone(&admission), capability.clone());
                tokio::spawn(async move { admission.enter(&capability, soon).await.map(drop) })
            })
            .collect();
        let door = admission.0.values().next().unwrap();
        while door.waiting.load(Ordering::Acquire) < 40 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            admission.enter(&capability, soon).await.unwrap_err().code(),
            "busy"
        );
        drop(inside.pop());
        let mut results = Vec::new();
        for task in waiting {
            results.push(task.await.unwrap());
        }
        // One place came free and is handed on from one to the next, so none of them times out.
        assert!(results.iter().all(Result::is_ok));
        assert_eq!(door.waiting.load(Ordering::Acquire), 0, "each leaves the queue");
        assert_eq!(
            admission
                .enter(&capability, Instant::now())
                .await
                .map(drop)
                .map_err(|e| e.code()),
            Ok(())
        );
    }
}
