use portcullis_lifecycle::Event;

/// What was ordered for a server and lasts, through all of its actors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is to run.
    On,
    /// It is switched off until it is switched on.
    Off,
    /// It has ended, or is to: that is for good.
    Ended,
}

impl Standing {
    pub(crate) fn of_spec(is_enabled: bool) -> Self {
        if is_enabled { Self::On } else { Self::Off }
    }

    /// What holds after `order`. A restart changes nothing here: whoever begins has it started anew.
    pub(crate) fn after(self, order: &Event) -> Self {
        match (self, order) {
            (Self::Ended, _) | (_, Event::Drain) => Self::Ended,
            (_, Event::Enable) => Self::On,
            (_, Event::Disable) => Self::Off,
            _ => self,
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
    use super::*;

    #[test]
    fn the_last_order_holds_and_an_end_is_for_good() {
        use Standing::{Ended, Off, On};
        let after = |standing: Standing, order| standing.after(&order);
        for (before, order, expected) in [
            (On, Event::Disable, Off),
            (Off, Event::Enable, On),
            (On, Event::Drain, Ended),
            (Off, Event::Drain, Ended),
            (Ended, Event::Enable, Ended),
            (Ended, Event::Disable, Ended),
            (Ended, Event::Restart, Ended),
            (On, Event::Restart, On),
            (Off, Event::Restart, Off),
            (Off, Event::Demand, Off),
        ] {
            assert_eq!(after(before, order.clone()), expected, "{before:?}, {order:?}");
        }
    }
}
