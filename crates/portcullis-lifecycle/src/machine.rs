mod failures;

use std::{fmt, time::Duration};

use crate::{Cause, Command, Event, Options, State, Transition};
use failures::Failures;

/// The state machine of one server. See the crate's page for what it does.
pub struct Machine {
    options: Options,
    jitter: Box<dyn FnMut() -> f64 + Send>,
    state: State,
    /// The generation of the last attempt; 0 before the first.
    // INVARIANT: grows with each Connect, and only then.
    generation: u64,
    /// The latest time that was given: time never goes back.
    now: Duration,
    /// When the shell will report a tick.
    // INVARIANT: where the state waits for a time, this is set and not later than that time.
    timer: Option<Duration>,
    failures: Failures,
    /// When the state was entered.
    since: Duration,
    /// When a call was last seen.
    last_call: Duration,
    /// Calls in flight, over all connections: a lost connection's calls end too.
    in_flight: u64,
    /// Where draining leads.
    // INVARIANT: set exactly while draining.
    then: Option<Then>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Connect,
    Disable,
    Stop,
}

impl Machine {
    /// A machine that waits for [`Event::Start`]: idle, or disabled.
    ///
    /// `jitter` gives a number in [0, 1) for each delay; what is outside is brought inside.
    #[must_use]
    pub fn new(options: Options, jitter: impl FnMut() -> f64 + Send + 'static, enabled: bool) -> Self {
        Self {
            options,
            jitter: Box::new(jitter),
            state: if enabled { State::Idle } else { State::Disabled },
            generation: 0,
            now: Duration::ZERO,
            timer: None,
            failures: Failures::default(),
            since: Duration::ZERO,
            last_call: Duration::ZERO,
            in_flight: 0,
            then: None,
        }
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The generation of the last attempt; 0 before the first. The connection's own while there is one.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Failures in a row, without enough health between them.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures.count()
    }

    /// Whether the attempt at hand only tries a server that was parked: calls fail at once meanwhile.
    #[must_use]
    pub fn is_probing(&self) -> bool {
        self.state == State::Connecting && self.failures.are_too_many(&self.options)
    }

    /// Whether a new connection follows the one that is draining; else the server ends then.
    #[must_use]
    pub fn comes_back(&self) -> bool {
        self.then == Some(Then::Connect)
    }

    /// Whether a tick at `now` would close the connection for want of calls. The shell sees to it first that none is
    /// on its way.
    #[must_use]
    pub fn is_idle_due(&self, now: Duration) -> bool {
        let due = self.waits_until();
        self.state == State::Ready && self.in_flight == 0 && due.is_some_and(|due| due <= self.now.max(now))
    }

    /// Takes an event that happened at `now` (since an epoch of the caller's choice; a time before the last one
    /// counts as the last one) and gives the commands to carry out, in order.
    pub fn on(&mut self, event: Event, now: Duration) -> Vec<Command> {
        self.now = self.now.max(now);
        let mut commands = Vec::new();
        if self.state != State::Stopped {
            self.take(event, &mut commands);
            self.arm(&mut commands);
        }
        self.check_invariants();
        commands
    }

    fn take(&mut self, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Start => self.demand(Cause::Started, out),
            Event::Enable => self.enable(out),
            Event::Disable => self.wind_down(Then::Disable, Cause::Disabled, out),
            Event::Restart => self.wind_down(Then::Connect, Cause::Restart, out),
            Event::Drain => self.wind_down(Then::Stop, Cause::Drain, out),
            Event::Stop => self.stop(out),
            Event::Connected { generation } => {
                if generation == self.generation && self.state == State::Connecting {
                    self.last_call = self.now;
                    self.failures.end_peace();
                    self.enter(State::Ready, Cause::Connected, None, out);
                }
            }
            Event::ConnectFailed { generation, reason } => {
                self.ended(generation, Cause::ConnectFailed, reason, out);
            }
            Event::Lost { generation, reason } => self.ended(generation, Cause::Lost, reason, out),
            Event::LeaveAlone { generation, wait } => {
                if generation == self.generation && self.state.is_live() {
                    self.failures.leave_alone(self.now, wait, &self.options);
                }
            }
            Event::Demand => {
                self.last_call = self.now;
                self.demand(Cause::Demanded, out);
            }
            Event::CallStarted => {
                self.last_call = self.now;
                self.in_flight = self.in_flight.saturating_add(1);
            }
            Event::CallEnded => {
                self.last_call = self.now;
                self.in_flight = self.in_flight.saturating_sub(1);
                if self.in_flight == 0 && self.state == State::Draining {
                    self.drained(Cause::Drained, None, out);
                }
            }
            Event::Tick => self.tick(out),
        }
    }

    /// A call, or the start of the hub, wants the server. A back-off is not cut short by it, nor the peace that the
    /// server asked for.
    fn demand(&mut self, cause: Cause, out: &mut Vec<Command>) {
        match self.state {
            State::Idle => self.connect(cause, out),
            State::Parked { .. } if cause == Cause::Demanded && !self.failures.asks_for_peace(self.now) => {
                self.connect(cause, out);
            }
            _ => {}
        }
    }

    fn enable(&mut self, out: &mut Vec<Command>) {
        match (self.state, self.then) {
            (State::Disabled, _) => {
                // Whoever switches it on or restarts it wants it now.
                self.failures = Failures::default();
                self.connect(Cause::Enabled, out);
            }
            // Switched off and on again while calls end: what follows then is a new connection.
            (State::Draining, Some(Then::Disable)) => self.then = Some(Then::Connect),
            _ => {}
        }
    }

    /// Ends the connection, once its calls have ended, and goes on to `then`.
    fn wind_down(&mut self, then: Then, cause: Cause, out: &mut Vec<Command>) {
        match self.state {
            State::Draining => {
                // The end for good is final, and what is switched off stays off until it is switched on.
                let keep = match self.then {
                    Some(Then::Stop) => true,
                    Some(Then::Disable) => then == Then::Connect,
                    Some(Then::Connect) | None => false,
                };
                if !keep {
                    self.then = Some(then);
                }
            }
            State::Disabled if then != Then::Stop => {}
            State::Ready if self.in_flight > 0 => {
                self.then = Some(then);
                self.enter(State::Draining, cause, None, out);
            }
            State::Ready | State::Connecting => {
                out.push(Command::Close {
                    generation: self.generation,
                });
                self.go_on(then, cause, None, out);
            }
            State::Disabled
            | State::Idle
            | State::BackingOff { .. }
            | State::Parked { .. }
            | State::Stopped => {
                self.go_on(then, cause, None, out);
            }
        }
    }

    fn go_on(&mut self, then: Then, cause: Cause, reason: Option<String>, out: &mut Vec<Command>) {
        self.then = None;
        match then {
            Then::Connect => {
                // Whoever switches it on or restarts it wants it now.
                self.failures = Failures::default();
                self.connect(cause, out);
            }
            Then::Disable => self.enter(State::Disabled, cause, reason, out),
            Then::Stop => self.enter(State::Stopped, cause, reason, out),
        }
    }

    fn drained(&mut self, cause: Cause, reason: Option<String>, out: &mut Vec<Command>) {
        out.push(Command::Close {
            generation: self.generation,
        });
        let then = self.then.unwrap_or(Then::Stop);
        self.go_on(then, cause, reason, out);
    }

    fn stop(&mut self, out: &mut Vec<Command>) {
        if self.state.is_live() {
            out.push(Command::Close {
                generation: self.generation,
            });
        }
        self.go_on(Then::Stop, Cause::Stop, None, out);
    }

    /// The connection or the attempt of `generation` is over. One of the past says nothing new.
    fn ended(&mut self, generation: u64, cause: Cause, reason: String, out: &mut Vec<Command>) {
        if generation != self.generation {
            return;
        }
        match self.state {
            State::Draining => self.drained(cause, Some(reason), out),
            State::Connecting | State::Ready => {
                if cause == Cause::Lost {
                    out.push(Command::Close { generation });
                }
                self.failed(cause, reason, out);
            }
            _ => {}
        }
    }

    fn failed(&mut self, cause: Cause, reason: String, out: &mut Vec<Command>) {
        self.count_health();
        let next = self.failures.add(self.now, &self.options, (self.jitter)());
        self.enter(next, cause, Some(reason), out);
    }

    /// Takes note of the time spent ready, where the state is that.
    fn count_health(&mut self) {
        if self.state == State::Ready {
            let time = self.now.saturating_sub(self.since);
            self.failures.was_ready(time, &self.options);
        }
    }

    fn tick(&mut self, out: &mut Vec<Command>) {
        self.timer = None;
        let Some(due) = self.waits_until().filter(|due| *due <= self.now) else {
            return;
        };
        match self.state {
            State::BackingOff { .. } => self.connect(Cause::Retry, out),
            State::Parked { .. } => self.connect(Cause::Probe, out),
            State::Draining => self.drained(Cause::DrainTimedOut, None, out),
            State::Connecting => {
                out.push(Command::Close {
                    generation: self.generation,
                });
                let after = due.saturating_sub(self.since).as_secs();
                self.failed(
                    Cause::ConnectFailed,
                    format!("no connection within {after} s"),
                    out,
                );
            }
            // A call that takes long keeps its connection.
            State::Ready if self.in_flight > 0 => self.last_call = self.now,
            State::Ready => {
                out.push(Command::Close {
                    generation: self.generation,
                });
                self.count_health();
                self.enter(State::Idle, Cause::Idle, None, out);
            }
            State::Disabled | State::Idle | State::Stopped => {}
        }
    }

    fn connect(&mut self, cause: Cause, out: &mut Vec<Command>) {
        self.generation = self.generation.saturating_add(1);
        out.push(Command::Connect {
            generation: self.generation,
        });
        self.enter(State::Connecting, cause, None, out);
    }

    fn enter(&mut self, to: State, cause: Cause, reason: Option<String>, out: &mut Vec<Command>) {
        let from = std::mem::replace(&mut self.state, to);
        self.since = self.now;
        let reason = reason.unwrap_or_else(|| cause.to_string());
        out.push(Command::Announce(Transition {
            from,
            to,
            cause,
            reason,
        }));
    }

    /// The time at which the state ends by itself.
    fn waits_until(&self) -> Option<Duration> {
        match self.state {
            State::BackingOff { until } => Some(until),
            State::Parked { probe_at } => Some(probe_at),
            State::Connecting => self
                .options
                .connect_within
                .map(|limit| self.since.saturating_add(limit)),
            State::Draining => Some(self.since.saturating_add(self.options.drain_for)),
            State::Ready => self
                .options
                .idle_after
                .map(|limit| self.last_call.saturating_add(limit)),
            State::Disabled | State::Idle | State::Stopped => None,
        }
    }

    /// Sees to it that a tick comes in time. A timer that is too early stays: its tick sets a later one, so that a
    /// call, which moves the idle deadline, costs no command.
    fn arm(&mut self, out: &mut Vec<Command>) {
        if let Some(due) = self.waits_until()
            && self.timer.is_none_or(|timer| timer > due)
        {
            self.timer = Some(due);
            out.push(Command::WakeAt(due));
        }
    }

    fn check_invariants(&self) {
        if let (Some(due), false) = (self.waits_until(), self.state == State::Stopped) {
            debug_assert!(
                self.timer.is_some_and(|timer| timer <= due),
                "nothing wakes {self:?}"
            );
        }
        debug_assert_eq!(self.then.is_some(), self.state == State::Draining, "{self:?}");
        debug_assert!(!self.state.is_live() || self.generation > 0, "{self:?}");
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine")
            .field("state", &self.state)
            .field("generation", &self.generation)
            .field("now", &self.now)
            .field("timer", &self.timer)
            .field("failures", &self.failures)
            .field("in_flight", &self.in_flight)
            .field("then", &self.then)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
