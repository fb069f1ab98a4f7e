use portcullis_lifecycle::Event;

/// What may be ordered for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Enable,
    Disable,
    Restart,
    Drain,
}

impl Order {
    pub(crate) fn event(self) -> Event {
        match self {
            Self::Enable => Event::Enable,
            Self::Disable => Event::Disable,
            Self::Restart => Event::Restart,
            Self::Drain => Event::Drain,
        }
    }
}

/// What of the orders lasts, through all actors of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Desired {
    /// It is to run.
    On,
    /// It is switched off until it is switched on.
    Off,
    /// It has ended, or is to: that is for good.
    Ended,
}

impl Desired {
    pub(crate) fn of_spec(is_enabled: bool) -> Self {
        if is_enabled { Self::On } else { Self::Off }
    }

    /// What holds after `order`. A restart changes nothing here: whoever begins starts the server anew.
    pub(crate) fn after(self, order: Order) -> Self {
        match (self, order) {
            (Self::Ended, _) | (_, Order::Drain) => Self::Ended,
            (_, Order::Enable) => Self::On,
            (_, Order::Disable) => Self::Off,
            (_, Order::Restart) => self,
        }
    }

    /// What an actor has to tell its machine first.
    pub(crate) fn first_event(self) -> Event {
        match self {
            Self::On => Event::Start,
            Self::Off => Event::Disable,
            Self::Ended => Event::Drain,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use portcullis_lifecycle::{Machine, Options, State};

    use super::*;

    const ORDERS: [Order; 4] = [Order::Enable, Order::Disable, Order::Restart, Order::Drain];

    /// All lists of so many orders.
    fn lists(length: usize) -> Vec<Vec<Order>> {
        if length == 0 {
            return vec![Vec::new()];
        }
        let longer = |list: Vec<Order>| ORDERS.map(|order| [list.clone(), vec![order]].concat());
        lists(length - 1).into_iter().flat_map(longer).collect()
    }

    /// Where the machine that was given `orders` stands in the end; with a call in flight meanwhile, or none.
    fn ends_in(is_enabled: bool, is_called: bool, orders: &[Order]) -> State {
        let mut machine = Machine::new(Options::default(), || 0.5, is_enabled);
        let mut on = |event| drop(machine.on(event, Duration::ZERO));
        on(Event::Start);
        on(Event::Connected { generation: 1 });
        if is_called {
            on(Event::CallStarted);
        }
        orders.iter().for_each(|order| on(order.event()));
        if is_called {
            on(Event::CallEnded);
        }
        *machine.state()
    }

    /// What a successor is told is what its predecessor's machine came to.
    #[test]
    fn what_lasts_of_orders_is_what_the_machine_makes_of_them() {
        for list in (0..=5).flat_map(lists) {
            for (is_enabled, is_called) in [(true, true), (true, false), (false, false)] {
                let desired = list
                    .iter()
                    .copied()
                    .fold(Desired::of_spec(is_enabled), Desired::after);
                let state = ends_in(is_enabled, is_called, &list);
                let expected = match state {
                    State::Disabled => Desired::Off,
                    State::Stopped => Desired::Ended,
                    _ => Desired::On,
                };
                assert_eq!(desired, expected, "{is_enabled}, {is_called}, {list:?}: {state}");
            }
        }
    }
}
