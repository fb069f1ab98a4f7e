//! Long sequences of events against a small reference model, with the laws checked after each event.

use proptest::prelude::*;

use super::*;

mod lists;

use lists::Lists;

/// One step of a sequence.
#[derive(Debug, Clone)]
enum Step {
    /// Time passes; no tick comes, as if the shell were slow.
    Pass(Duration),
    /// The timer fires in time.
    Wake,
    /// The timer of the lists fires in time.
    WakeLists,
    /// The server says so many times that its tools changed, and any listing ends before the next one.
    Changes(u8),
    /// The server says that its tools changed.
    ListChanged,
    /// The listing that runs ends, well or not.
    Listed(bool),
    /// An event, for the generation at hand or one of the past.
    Event(Kind, Stale),
}

type Stale = bool;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Start,
    Enable,
    Disable,
    Connected,
    ConnectFailed,
    Lost,
    LeaveAlone(u64),
    Demand,
    CallStarted,
    CallEnded,
    Tick,
    Restart,
    Drain,
    Stop,
}

/// What the machine must do, written as a table and by absolute times, without commands.
#[derive(Debug, Clone)]
struct Model {
    state: State,
    generation: u64,
    failures: u32,
    healthy: Duration,
    ready_at: Duration,
    peace: Duration,
    deadline: Option<Duration>,
    calls: u64,
    after_drain: Kind,
}

impl Model {
    fn new(enabled: bool) -> Self {
        Self {
            state: if enabled { State::Idle } else { State::Disabled },
            generation: 0,
            failures: 0,
            healthy: Duration::ZERO,
            ready_at: Duration::ZERO,
            peace: Duration::ZERO,
            deadline: None,
            calls: 0,
            after_drain: Kind::Stop,
        }
    }

    fn to(&mut self, state: State, deadline: Option<Duration>) {
        self.state = state;
        self.deadline = deadline;
    }

    fn connect(&mut self, now: Duration, o: &Options) {
        self.generation += 1;
        self.to(State::Connecting, o.connect_within.map(|d| now + d));
    }

    fn fresh(&mut self, now: Duration, o: &Options) {
        (self.failures, self.healthy, self.peace) = (0, Duration::ZERO, Duration::ZERO);
        self.connect(now, o);
    }

    fn fail(&mut self, now: Duration, o: &Options, jitter: f64) {
        if self.state == State::Ready && self.healthy + (now - self.ready_at) >= o.healthy_after {
            self.failures = 0;
        }
        self.failures += 1;
        self.healthy = Duration::ZERO;
        if self.failures >= o.park_after {
            let at = self.peace.max(now + o.probe_every);
            self.to(State::Parked { probe_at: at }, Some(at));
        } else {
            let ceiling = (o.base * 2_u32.pow((self.failures - 1).min(20))).min(o.cap);
            let at = self.peace.max(now + ceiling.mul_f64(jitter));
            self.to(State::BackingOff { until: at }, Some(at));
        }
    }

    fn finish(&mut self, how: Kind, now: Duration, o: &Options) {
        match how {
            Kind::Disable => self.to(State::Disabled, None),
            Kind::Restart => self.fresh(now, o),
            _ => self.to(State::Stopped, None),
        }
    }

    fn on(&mut self, kind: Kind, current: bool, now: Duration, o: &Options, jitter: f64) {
        use Kind::{Disable, Drain, Restart};
        if matches!(kind, Kind::Demand | Kind::CallStarted | Kind::CallEnded) && self.state == State::Ready {
            self.deadline = o.idle_after.map(|d| now + d);
        }
        match kind {
            Kind::CallStarted => self.calls += 1,
            Kind::CallEnded => self.calls = self.calls.saturating_sub(1),
            _ => {}
        }
        match (self.state, kind) {
            (State::Stopped, _) => {}
            (_, Kind::Stop) => self.to(State::Stopped, None),
            (State::Connecting | State::Ready | State::Draining, Kind::LeaveAlone(seconds)) if current => {
                let wait = Duration::from_secs(seconds).min(o.leave_alone_at_most);
                self.peace = self.peace.max(now + wait);
            }
            (State::Parked { .. }, Kind::Demand) if now < self.peace => {}
            (State::Idle, Kind::Start | Kind::Demand) | (State::Parked { .. }, Kind::Demand) => {
                self.connect(now, o)
            }
            (State::Disabled, Kind::Enable) => self.fresh(now, o),
            (State::Disabled, Disable | Restart) => {}
            (State::Draining, Kind::Enable) if matches!(self.after_drain, Disable) => {
                self.after_drain = Restart
            }
            (State::Draining, Disable | Restart | Drain) => match (self.after_drain, kind) {
                (Drain, _) | (Disable, Restart) => {}
                _ => self.after_drain = kind,
            },
            (State::Ready, Disable | Restart | Drain) if self.calls > 0 => {
                self.after_drain = kind;
                self.to(State::Draining, Some(now + o.drain_for));
            }
            (_, Disable | Restart | Drain) => self.finish(kind, now, o),
            (State::Draining, Kind::CallEnded) if self.calls == 0 => self.finish(self.after_drain, now, o),
            (State::Connecting, Kind::Connected) if current => {
                self.ready_at = now;
                self.peace = Duration::ZERO;
                self.to(State::Ready, o.idle_after.map(|d| now + d));
            }
            (State::Connecting | State::Ready, Kind::ConnectFailed | Kind::Lost) if current => {
                self.fail(now, o, jitter);
            }
            (State::Draining, Kind::ConnectFailed | Kind::Lost) if current => {
                self.finish(self.after_drain, now, o);
            }
            (_, Kind::Tick) if self.deadline.is_some_and(|at| at <= now) => match self.state {
                State::Connecting => self.fail(now, o, jitter),
                State::Draining => self.finish(self.after_drain, now, o),
                State::BackingOff { .. } | State::Parked { .. } => self.connect(now, o),
                _ if self.calls > 0 => self.deadline = o.idle_after.map(|d| now + d),
                _ => {
                    self.healthy += now - self.ready_at;
                    if self.healthy >= o.healthy_after {
                        self.failures = 0;
                    }
                    self.to(State::Idle, None);
                }
            },
            _ => {}
        }
    }
}

/// The machine, the model and what the shell knows, run side by side.
struct Run {
    machine: Machine,
    model: Model,
    options: Options,
    now: Duration,
    timer: Option<Duration>,
    /// The connection or attempt that the shell holds.
    open: Option<u64>,
    last_generation: u64,
    told: State,
    lists: Lists,
}

/// Every delay of a run is this part of the longest.
const JITTER: f64 = 0.75;

impl Run {
    fn new(options: Options, enabled: bool) -> Self {
        let machine = Machine::new(options.clone(), || JITTER, enabled);
        let told = *machine.state();
        let model = Model::new(enabled);
        Self {
            machine,
            model,
            options,
            now: Duration::ZERO,
            timer: None,
            open: None,
            last_generation: 0,
            told,
            lists: Lists::default(),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Pass(time) => {
                self.now += time;
                Ok(())
            }
            Step::Wake => {
                let Some(at) = self.timer else { return Ok(()) };
                self.now = self.now.max(at);
                self.event(Kind::Tick, false)
            }
            Step::WakeLists => {
                let Some(at) = self.lists.timer.take() else {
                    return Ok(());
                };
                self.now = self.now.max(at);
                let now = self.now;
                self.lists.happens(now, |relist| relist.tick(now))
            }
            Step::ListChanged if self.lists.relist.is_some() => self.lists.changed(self.now),
            Step::ListChanged => Ok(()),
            Step::Changes(count) => (0..count).try_for_each(|_| {
                self.step(&Step::ListChanged)?;
                self.step(&Step::Listed(true))
            }),
            Step::Listed(well) => self.lists.listed(well, self.now),
            Step::Event(kind, stale) => self.event(kind, stale),
        }
    }

    fn event(&mut self, kind: Kind, stale: bool) -> Result<(), TestCaseError> {
        let generation = self.machine.generation().wrapping_sub(u64::from(stale));
        let reason = "it said so".to_owned();
        let event = match kind {
            Kind::Start => Event::Start,
            Kind::Enable => Event::Enable,
            Kind::Disable => Event::Disable,
            Kind::Connected => Event::Connected { generation },
            Kind::ConnectFailed => Event::ConnectFailed { generation, reason },
            Kind::Lost => Event::Lost { generation, reason },
            Kind::LeaveAlone(seconds) => Event::LeaveAlone {
                generation,
                wait: Duration::from_secs(seconds),
            },
            Kind::Demand => Event::Demand,
            Kind::CallStarted => Event::CallStarted,
            Kind::CallEnded => Event::CallEnded,
            Kind::Tick => Event::Tick,
            Kind::Restart => Event::Restart,
            Kind::Drain => Event::Drain,
            Kind::Stop => Event::Stop,
        };
        if matches!(kind, Kind::Tick) {
            self.timer = None;
        }
        if matches!(kind, Kind::ConnectFailed) && self.open == Some(generation) {
            self.open = None;
        }
        self.model.on(kind, !stale, self.now, &self.options, JITTER);
        let commands = self.machine.on(event, self.now);
        self.carry_out(&commands)?;
        let connected = matches!(self.machine.state(), State::Ready | State::Draining);
        if connected != self.lists.relist.is_some() {
            self.lists = match connected {
                true => Lists::of_a_new_connection(),
                false => Lists::default(),
            };
        }
        self.check_laws()
    }

    fn carry_out(&mut self, commands: &[Command]) -> Result<(), TestCaseError> {
        for command in commands {
            match command {
                Command::Connect { generation } => {
                    prop_assert_eq!(self.open, None, "two connections at once");
                    prop_assert!(*generation > self.last_generation, "a generation came twice");
                    self.last_generation = *generation;
                    self.open = Some(*generation);
                }
                Command::Close { generation } => {
                    prop_assert!(*generation <= self.last_generation);
                    self.open = self.open.filter(|open| open != generation);
                }
                Command::WakeAt(at) => self.timer = Some(*at),
                Command::Announce(transition) => {
                    prop_assert_eq!(transition.from, self.told, "a change was not announced");
                    prop_assert!(!transition.reason.is_empty());
                    self.told = transition.to;
                }
            }
        }
        Ok(())
    }

    fn check_laws(&self) -> Result<(), TestCaseError> {
        let state = *self.machine.state();
        prop_assert_eq!(state, self.model.state);
        prop_assert_eq!(state, self.told);
        prop_assert_eq!(self.machine.generation(), self.model.generation);
        prop_assert_eq!(self.machine.failures(), self.model.failures);
        prop_assert_eq!(
            self.open.is_some(),
            state.is_live(),
            "a connection leaks, or is missing: {:?}",
            self.machine
        );
        prop_assert!(self.open.is_none_or(|open| open == self.machine.generation()));
        if let Some(deadline) = self.model.deadline {
            prop_assert!(
                self.timer.is_some_and(|timer| timer <= deadline),
                "nothing wakes {:?}",
                self.machine
            );
        }
        if let State::BackingOff { until } = state {
            let longest = self.options.longest_delay(self.machine.failures());
            let peace = self.options.leave_alone_at_most;
            prop_assert!(until <= self.now + longest.max(peace) && longest <= self.options.cap);
        }
        Ok(())
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let often = proptest::sample::select(vec![
        Kind::Connected,
        Kind::Connected,
        Kind::ConnectFailed,
        Kind::Lost,
        Kind::LeaveAlone(7),
        Kind::LeaveAlone(1_000),
        Kind::Demand,
        Kind::CallStarted,
        Kind::CallEnded,
        Kind::CallEnded,
        Kind::Tick,
    ]);
    let seldom = proptest::sample::select(vec![Kind::Start, Kind::Enable, Kind::Disable, Kind::Restart]);
    let end = proptest::sample::select(vec![Kind::Drain, Kind::Stop]);
    let event = prop_oneof![20 => often, 3 => seldom, 1 => end];
    prop_oneof![
        2 => prop_oneof![0..1_000_u64, 0..100_000_u64, 0..4_000_000_u64].prop_map(|ms| Step::Pass(Duration::from_millis(ms))),
        2 => Just(Step::Wake),
        4 => prop_oneof![
            2 => Just(Step::ListChanged),
            1 => (2..9_u8).prop_map(Step::Changes),
            1 => Just(Step::WakeLists),
            2 => proptest::bool::weighted(0.9).prop_map(Step::Listed),
        ],
        6 => (event, proptest::bool::weighted(0.1)).prop_map(|(kind, stale)| Step::Event(kind, stale)),
    ]
}

fn any_options() -> impl Strategy<Value = Options> {
    let short = prop_oneof![
        Just(None),
        (1..100_u64).prop_map(|s| Some(Duration::from_secs(s)))
    ];
    (short.clone(), short, 1..8_u32).prop_map(|(idle_after, connect_within, park_after)| Options {
        idle_after,
        connect_within,
        park_after,
        ..Options::default()
    })
}

/// A server that ended for good is configured anew after a while, with a machine of its own.
fn run(options: Options, enabled: bool, steps: &[Step]) -> Result<(), TestCaseError> {
    const STAYS_STOPPED: usize = 25;
    let mut run = Run::new(options.clone(), enabled);
    let mut stopped = 0;
    for step in steps {
        run.step(step)?;
        stopped += usize::from(*run.machine.state() == State::Stopped);
        if stopped > STAYS_STOPPED {
            (run, stopped) = (Run::new(options.clone(), true), 0);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn short_sequences_follow_the_model(
        options in any_options(),
        enabled: bool,
        steps in proptest::collection::vec(any_step(), 0..120),
    ) {
        run(options, enabled, &steps)?;
    }

    /// Whatever happened, a server that is on and works again gets connected by its timers alone, and one that is
    /// stopped never again.
    #[test]
    fn nothing_hangs(
        enabled: bool,
        steps in proptest::collection::vec(any_step(), 0..60),
        stop: bool,
    ) {
        let mut run = Run::new(Options::default(), enabled);
        steps.iter().try_for_each(|step| run.step(step))?;
        if stop {
            run.event(Kind::Stop, false)?;
        }
        for _ in 0..20 {
            match run.machine.state() {
                State::Ready | State::Disabled | State::Stopped => break,
                State::Connecting => run.event(Kind::Connected, false)?,
                State::Idle => run.event(Kind::Demand, false)?,
                State::Draining | State::BackingOff { .. } | State::Parked { .. } => run.step(&Step::Wake)?,
            }
        }
        let end = run.machine.state();
        prop_assert!(matches!(end, State::Ready | State::Disabled | State::Stopped), "{:?}", run.machine);
        prop_assert!(!stop || *end == State::Stopped);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2_000, ..ProptestConfig::with_cases(6) })]

    /// Crashes, slow and mute starts, changes of the tools, reloads and stops.
    #[test]
    fn long_sequences_follow_the_model(
        options in any_options(),
        steps in proptest::collection::vec(any_step(), 10_000),
    ) {
        run(options, true, &steps)?;
    }
}
