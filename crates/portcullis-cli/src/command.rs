//! The commands, one a file.

pub(crate) mod approvals;
pub(crate) mod blobs;
pub(crate) mod call;
pub(crate) mod check;
pub(crate) mod demo_server;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod pins;
pub(crate) mod policy;
pub(crate) mod serve;
pub(crate) mod tools;
