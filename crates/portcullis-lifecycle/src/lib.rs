//! The life of one supervised server as a pure state machine: events and the time go in, commands come out.
//!
//! A [`Machine`] says when to connect, how long to wait after a failure, when to give a server up for a while, and
//! when to close one that nobody calls. The shell around it (an actor) carries the commands out, reports what came
//! of them, and keeps one timer.
//!
//! - One connection at a time. Each attempt has a new generation; what a past one still reports is ignored.
//! - After a failure it waits: exponential back-off with full jitter, [`Options::base`] to [`Options::cap`]. After
//!   [`Options::park_after`] failures without [`Options::healthy_after`] of health between them, however slowly they
//!   come, it parks, and tries again every [`Options::probe_every`] and on demand.
//! - A server that asks to be left alone for a while is, up to [`Options::leave_alone_at_most`], whatever is demanded.
//! - A connection without a call for [`Options::idle_after`] is closed and opened again by the next demand.
//! - Draining lets the calls in flight end, for [`Options::drain_for`] at most.
//! - A [`Relist`] says when the tools are listed anew: twice at most in a burst of changes, the last one never lost.
//! - Nothing waits for ever: each state that waits for time has a timer, and an attempt that never reports is over
//!   after [`Options::connect_within`].
//!
//! Deliberately absent: clocks, randomness (both are parameters), IO, any async runtime, and what a connection is.
//!
//! ```
//! use std::time::Duration;
//! use portcullis_lifecycle::{Command, Event, Machine, Options, State};
//!
//! let mut machine = Machine::new(Options::default(), || 0.5, true);
//! let commands = machine.on(Event::Start, Duration::ZERO);
//! assert_eq!(commands[0], Command::Connect { generation: 1 });
//!
//! let failed = Event::ConnectFailed { generation: 1, reason: "exit status 1".to_owned() };
//! machine.on(failed, Duration::from_secs(1));
//! // The first delay is up to 200 ms; the jitter of 0.5 makes it 100 ms.
//! assert_eq!(machine.state(), &State::BackingOff { until: Duration::from_millis(1100) });
//! assert_eq!(machine.on(Event::Tick, Duration::from_millis(1100))[0], Command::Connect { generation: 2 });
//! ```

mod event;
mod machine;
mod options;
mod relist;
mod state;

pub use event::{Command, Event, Transition};
pub use machine::Machine;
pub use options::Options;
pub use relist::{Relist, Relisting};
pub use state::{Cause, ServerState, State};
