//! The pure state machine of one supervised server.
