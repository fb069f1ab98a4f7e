use super::*;

mod model;

const SECOND: Duration = Duration::from_secs(1);

/// A machine with its shell: keeps the clock and the timer, and notes what was announced.
struct World {
    machine: Machine,
    now: Duration,
    timer: Option<Duration>,
    attempts: Vec<Duration>,
    told: Vec<String>,
    closed: Vec<u64>,
}

impl World {
    /// A started machine whose delays are the longest that are allowed.
    fn started(options: Options) -> Self {
        let machine = Machine::new(options, || 1.0, true);
        let mut world = Self {
            machine,
            now: Duration::ZERO,
            timer: None,
            attempts: vec![],
            told: vec![],
            closed: vec![],
        };
        world.on(Event::Start);
        world
    }

    fn ready() -> Self {
        let mut world = Self::started(Options::default());
        world.connected();
        world
    }

    fn on(&mut self, event: Event) -> Vec<Command> {
        let commands = self.machine.on(event, self.now);
        for command in &commands {
            match command {
                Command::Connect { .. } => self.attempts.push(self.now),
                Command::Close { generation } => self.closed.push(*generation),
                Command::WakeAt(at) => self.timer = Some(*at),
                Command::Announce(Transition { from, to, cause, .. }) => {
                    self.told.push(format!("{from} > {to}: {}", cause.as_str()));
                }
            }
        }
        commands
    }

    fn connected(&mut self) {
        self.on(Event::Connected {
            generation: self.machine.generation(),
        });
    }

    fn connect_failed(&mut self) {
        self.on(Event::ConnectFailed {
            generation: self.machine.generation(),
            reason: "refused".to_owned(),
        });
    }

    fn lost(&mut self) {
        self.on(Event::Lost {
            generation: self.machine.generation(),
            reason: "exit status 1".to_owned(),
        });
    }

    /// Lets `time` pass, with the ticks that are due meanwhile.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.timer.filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.timer = None;
            self.on(Event::Tick);
        }
        self.now = end;
    }

    /// Lets time pass up to the timer, and its tick.
    fn wake(&mut self) {
        let at = self.timer.expect("something waits");
        self.pass(at.saturating_sub(self.now));
    }

    #[track_caller]
    fn told(&mut self, expected: &[&str]) {
        assert_eq!(std::mem::take(&mut self.told), expected);
    }

    fn state(&self) -> String {
        self.machine.state().to_string()
    }
}

#[test]
fn report_38_a_server_that_always_fails_backs_off_parks_and_is_probed() {
    let mut world = World::started(Options::default());
    for _ in 0..7 {
        world.connect_failed();
        world.wake();
    }
    let gaps: Vec<_> = world
        .attempts
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_millis())
        .collect();
    assert_eq!(gaps, [200, 400, 800, 1600, 300_000, 300_000, 300_000]);
    assert!(world.machine.is_probing());
    assert_eq!(world.machine.generation(), 8);
}

#[test]
fn report_38_down_for_two_minutes_then_back_by_itself() {
    let mut world = World::started(Options::default());
    while world.now < 120 * SECOND {
        world.connect_failed();
        world.wake();
    }
    world.connected();
    assert_eq!(world.state(), "ready");
    assert!(world.now <= 120 * SECOND + 300 * SECOND);
}

#[test]
fn a_server_that_asks_to_be_left_alone_is_up_to_a_cap() {
    let leave_alone = |world: &mut World, seconds: u64| {
        world.on(Event::LeaveAlone {
            generation: world.machine.generation(),
            wait: Duration::from_secs(seconds),
        });
    };
    for (asked, waits) in [
        (0, 200),
        (9, 9_000),
        (300, 300_000),
        (86_400, 300_000),
        (u64::MAX, 300_000),
    ] {
        let mut world = World::started(Options::default());
        leave_alone(&mut world, asked);
        world.connect_failed();
        let failed_at = world.now;
        // Nothing that is wanted meanwhile cuts it short.
        world.on(Event::Demand);
        world.wake();
        assert_eq!((world.now - failed_at).as_millis(), waits, "{asked}");
        assert_eq!(world.state(), "connecting");
    }
    // A connection that was lost, and a parked server, are left alone as well.
    let mut world = World::ready();
    leave_alone(&mut world, 60);
    world.lost();
    world.pass(59 * SECOND);
    assert_eq!(world.state(), "backing_off");
    for _ in 0..4 {
        world.wake();
        leave_alone(&mut world, 60);
        world.connect_failed();
    }
    assert_eq!(world.state(), "parked");
    world.pass(59 * SECOND);
    world.on(Event::Demand);
    assert_eq!(world.state(), "parked");
    world.pass(SECOND);
    world.on(Event::Demand);
    assert_eq!(world.state(), "connecting");
    // However often such a one would be probed.
    let mut often = World::started(Options {
        park_after: 1,
        probe_every: SECOND,
        ..Options::default()
    });
    leave_alone(&mut often, 60);
    often.connect_failed();
    often.wake();
    assert_eq!((often.state().as_str(), often.now), ("connecting", 60 * SECOND));
    // Once it has connected, what it asked for before is over; and a person's word counts more.
    world.connected();
    world.lost();
    world.wake();
    assert!(world.now < 1_000 * SECOND);
    leave_alone(&mut world, 60);
    world.connect_failed();
    world.on(Event::Restart);
    assert_eq!(world.state(), "connecting");
    // What a past attempt was told is nothing to this one.
    let stale = Event::LeaveAlone {
        generation: 1,
        wait: 60 * SECOND,
    };
    world.on(stale);
    world.connect_failed();
    world.wake();
    assert_eq!(world.state(), "connecting");
}

#[test]
fn failures_park_however_slowly_they_come() {
    let mut world = World::ready();
    for _ in 0..4 {
        world.pass(59 * SECOND);
        world.lost();
        assert_eq!(world.state(), "backing_off");
        world.wake();
        world.connected();
    }
    world.lost();
    assert_eq!(world.state(), "parked");
}

#[test]
fn a_minute_of_health_wipes_the_failures_out() {
    let mut world = World::ready();
    for _ in 0..100 {
        world.pass(60 * SECOND);
        world.lost();
        assert_eq!(world.machine.failures(), 1);
        world.wake();
        world.connected();
    }
}

#[test]
fn health_adds_up_over_connections_that_were_closed_for_want_of_calls() {
    let mut world = World::started(Options {
        idle_after: Some(20 * SECOND),
        ..Options::default()
    });
    world.connect_failed();
    world.wake();
    for _ in 0..3 {
        world.connected();
        assert_eq!(world.machine.failures(), 1);
        world.wake();
        assert_eq!(world.state(), "idle");
        world.on(Event::Demand);
    }
    assert_eq!(world.machine.failures(), 0);
}

#[test]
fn a_parked_server_is_tried_at_once_on_demand_and_once_only() {
    let mut world = World::started(Options {
        park_after: 1,
        ..Options::default()
    });
    world.connect_failed();
    assert_eq!(world.state(), "parked");
    world.on(Event::Start);
    assert_eq!(world.state(), "parked");
    world.on(Event::Demand);
    world.on(Event::Demand);
    assert_eq!(world.attempts.len(), 2);
    assert!(world.machine.is_probing());
    world.connect_failed();
    assert_eq!(
        *world.machine.state(),
        State::Parked {
            probe_at: world.now + 300 * SECOND
        }
    );
}

#[test]
fn demand_does_not_shorten_a_back_off() {
    let mut world = World::started(Options::default());
    world.connect_failed();
    let before = *world.machine.state();
    assert_eq!(world.on(Event::Demand), []);
    assert_eq!(*world.machine.state(), before);
    assert!(!world.machine.is_probing());
}

#[test]
fn idle_counts_from_the_last_call_and_never_closes_one_in_flight() {
    let mut world = World::ready();
    world.pass(20 * 60 * SECOND);
    assert_eq!(world.on(Event::CallStarted), [], "a call costs no command");
    world.pass(3 * 3600 * SECOND);
    assert_eq!(world.state(), "ready");
    world.on(Event::CallEnded);
    world.pass(30 * 60 * SECOND - SECOND);
    assert_eq!(world.state(), "ready");
    world.pass(SECOND);
    assert_eq!(world.state(), "idle");
    assert_eq!(world.closed, [1]);
    world.told(&[
        "idle > connecting: started",
        "connecting > ready: connected",
        "ready > idle: idle",
    ]);
    world.on(Event::Demand);
    assert_eq!(
        (world.state().as_str(), world.machine.generation()),
        ("connecting", 2)
    );
}

#[test]
fn an_idle_close_is_seen_coming() {
    let mut world = World::ready();
    let half_an_hour = 1_800 * SECOND;
    assert!(!world.machine.is_idle_due(half_an_hour - SECOND));
    assert!(world.machine.is_idle_due(half_an_hour));
    world.on(Event::CallStarted);
    assert!(!world.machine.is_idle_due(half_an_hour), "a call is in flight");
    world.on(Event::CallEnded);
    world.pass(half_an_hour);
    assert!(!world.machine.is_idle_due(world.now), "it is closed");
}

#[test]
fn without_an_idle_deadline_a_connection_stays() {
    let mut world = World::started(Options {
        idle_after: None,
        ..Options::default()
    });
    world.connected();
    world.pass(1_000_000 * SECOND);
    assert_eq!(world.state(), "ready");
}

#[test]
fn draining_lets_calls_end() {
    for (event, end, attempts) in [
        (Event::Drain, "stopped", 1),
        (Event::Disable, "disabled", 1),
        (Event::Restart, "connecting", 2),
    ] {
        let mut world = World::ready();
        world.on(Event::CallStarted);
        world.on(Event::CallStarted);
        world.on(event.clone());
        world.on(Event::Demand);
        world.on(Event::CallEnded);
        assert_eq!(
            (world.state().as_str(), world.closed.len()),
            ("draining", 0),
            "{event:?}"
        );
        world.on(Event::CallEnded);
        assert_eq!(
            (world.state().as_str(), world.closed.len(), world.attempts.len()),
            (end, 1, attempts),
            "{event:?}"
        );
    }
}

#[test]
fn draining_ends_by_its_deadline_or_with_the_connection() {
    let mut world = World::ready();
    world.on(Event::CallStarted);
    world.on(Event::Drain);
    world.pass(30 * SECOND);
    assert_eq!((world.state().as_str(), &world.closed[..]), ("stopped", &[1][..]));

    let mut world = World::ready();
    world.on(Event::CallStarted);
    world.on(Event::Disable);
    world.lost();
    assert_eq!(
        (world.state().as_str(), &world.closed[..]),
        ("disabled", &[1][..])
    );
    world.told(&[
        "idle > connecting: started",
        "connecting > ready: connected",
        "ready > draining: disabled",
        "draining > disabled: lost",
    ]);
}

#[test]
fn the_last_word_said_while_draining_counts_but_the_end_is_final() {
    for (events, end) in [
        (&[Event::Disable, Event::Enable][..], "connecting"),
        (&[Event::Disable, Event::Restart], "disabled"),
        (&[Event::Restart, Event::Disable], "disabled"),
        (&[Event::Restart, Event::Drain], "stopped"),
        (&[Event::Drain, Event::Enable], "stopped"),
        (&[Event::Drain, Event::Restart, Event::Disable], "stopped"),
        (&[Event::Disable, Event::Stop], "stopped"),
    ] {
        let mut world = World::ready();
        world.on(Event::CallStarted);
        for event in events {
            world.on(event.clone());
        }
        assert_eq!(world.machine.comes_back(), end == "connecting", "{events:?}");
        world.on(Event::CallEnded);
        assert_eq!(world.state(), end, "{events:?}");
    }
}

#[test]
fn stop_ends_every_state_and_closes_what_is_open() {
    type Setup = fn() -> World;
    let parked = || {
        let mut world = World::started(Options {
            park_after: 1,
            ..Options::default()
        });
        world.connect_failed();
        world
    };
    let disabled = || {
        let mut world = World::ready();
        world.on(Event::Disable);
        world.closed.clear();
        world
    };
    let draining = || {
        let mut world = World::ready();
        world.on(Event::CallStarted);
        world.on(Event::Drain);
        world
    };
    let backing_off = || {
        let mut world = World::ready();
        world.lost();
        world.closed.clear();
        world
    };
    let idle = || {
        let mut world = World::ready();
        world.pass(30 * 60 * SECOND);
        world.closed.clear();
        world
    };
    let cases: [(&str, Setup, &[u64]); 7] = [
        ("connecting", || World::started(Options::default()), &[1]),
        ("ready", World::ready, &[1]),
        ("draining", draining, &[1]),
        ("backing_off", backing_off, &[]),
        ("parked", parked, &[]),
        ("disabled", disabled, &[]),
        ("idle", idle, &[]),
    ];
    for (state, setup, closed) in cases {
        let mut world = setup();
        assert_eq!(world.state(), state);
        world.on(Event::Stop);
        assert_eq!(
            (world.state().as_str(), &world.closed[..]),
            ("stopped", closed),
            "{state}"
        );
        for event in [
            Event::Start,
            Event::Enable,
            Event::Demand,
            Event::Restart,
            Event::Tick,
            Event::Stop,
            Event::CallEnded,
        ] {
            assert_eq!(world.on(event), [], "{state}");
        }
    }
}

#[test]
fn a_disabled_server_connects_only_when_it_is_enabled() {
    let mut machine = Machine::new(Options::default(), || 0.0, false);
    for event in [
        Event::Start,
        Event::Demand,
        Event::Restart,
        Event::Tick,
        Event::Disable,
    ] {
        assert_eq!(machine.on(event, SECOND), []);
    }
    let commands = machine.on(Event::Enable, SECOND);
    assert_eq!(commands[0], Command::Connect { generation: 1 });
}

#[test]
fn what_past_generations_report_is_ignored() {
    let mut world = World::ready();
    world.lost();
    world.wake();
    assert_eq!(world.machine.generation(), 2);
    for generation in [0, 1, 3] {
        let reason = String::new;
        for event in [
            Event::Connected { generation },
            Event::ConnectFailed {
                generation,
                reason: reason(),
            },
            Event::Lost {
                generation,
                reason: reason(),
            },
        ] {
            assert_eq!(world.on(event), []);
        }
    }
    assert_eq!(world.state(), "connecting");
}

#[test]
fn an_attempt_that_never_reports_is_given_up() {
    let mut world = World::started(Options::default());
    world.pass(300 * SECOND);
    assert_eq!(
        (world.state().as_str(), &world.closed[..]),
        ("backing_off", &[1][..])
    );
    let machine = &mut world.machine;
    assert_eq!(machine.on(Event::Connected { generation: 1 }, world.now), []);
}

#[test]
fn ticks_too_early_or_too_many_do_no_harm_and_time_never_goes_back() {
    let mut world = World::started(Options::default());
    world.now = SECOND;
    world.connect_failed();
    let waiting = *world.machine.state();
    for now in [
        SECOND,
        SECOND / 2,
        Duration::ZERO,
        SECOND * 6 / 5 - Duration::from_nanos(1),
    ] {
        let commands = world.machine.on(Event::Tick, now);
        assert_eq!(*world.machine.state(), waiting);
        assert_eq!(
            commands,
            [Command::WakeAt(SECOND * 6 / 5)],
            "the timer was used up"
        );
    }
    let commands = world.machine.on(Event::Tick, SECOND * 6 / 5);
    assert_eq!(commands[0], Command::Connect { generation: 2 });
}

#[test]
fn a_random_source_of_any_kind_stays_within_the_bounds() {
    for (jitter, delay) in [
        (0.0, 0),
        (0.5, 100),
        (1.0, 200),
        (7.0, 200),
        (-1.0, 0),
        (f64::NAN, 200),
        (f64::INFINITY, 200),
    ] {
        let mut machine = Machine::new(Options::default(), move || jitter, true);
        machine.on(Event::Start, Duration::ZERO);
        machine.on(
            Event::ConnectFailed {
                generation: 1,
                reason: String::new(),
            },
            Duration::ZERO,
        );
        assert_eq!(
            *machine.state(),
            State::BackingOff {
                until: Duration::from_millis(delay)
            },
            "{jitter}"
        );
    }
}

#[test]
fn times_at_the_end_of_time_do_not_overflow() {
    let options = Options {
        cap: Duration::MAX,
        base: Duration::MAX,
        probe_every: Duration::MAX,
        ..Options::default()
    };
    let mut machine = Machine::new(options, || 1.0, true);
    machine.on(Event::Start, Duration::MAX);
    machine.on(
        Event::ConnectFailed {
            generation: 1,
            reason: String::new(),
        },
        Duration::MAX,
    );
    assert_eq!(*machine.state(), State::BackingOff { until: Duration::MAX });
}

#[test]
fn each_cause_has_a_code_of_its_own() {
    let codes: std::collections::HashSet<_> = Cause::ALL.into_iter().map(Cause::as_str).collect();
    assert_eq!(codes.len(), Cause::ALL.len());
}
