//! The socket between hub and warden: packets of a few bytes, some with descriptors.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Both sides must agree on this; the bytes of orders and reports are part of it.
pub(crate) const VERSION: u8 = 1;
/// The only argument of a program that is executed as a warden.
pub(crate) const ARGUMENT: &str = "serve-the-hub-on-descriptor-0";
/// The name that a program is given when it is executed as a warden.
pub(crate) const NAME: &str = "portcullis-warden";

/// The hub's first packet: this and its version, with the hub's pidfd where the kernel has them.
pub(crate) const HELLO: u8 = b'H';
/// Asks for a keeper, with four descriptors: the server's three pipes and the keeper's socket.
pub(crate) const KEEPER: u8 = b'K';

/// Why a warden refuses to work, by its place in this list; the warden's answer to `HELLO` is its version and 0, or
/// one more than the place.
pub(crate) const REFUSALS: [&str; 3] = [
    "there is no `/proc` to find processes in; mount it",
    "a thread runs already; call `portcullis_warden::init()` first in `main`, before anything that starts threads",
    "the kernel refuses child subreapers or signal descriptors",
];

/// A packet, and the descriptors that came with it.
#[derive(Debug, Default)]
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Sends a packet without waiting.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::io::retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags))?;
    Ok(())
}

/// Waits for a packet, as long as the socket's own deadline allows. An empty one is the end.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<Packet> {
    let mut bytes = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let received =
        rustix::io::retry_on_intr(|| recvmsg(&socket, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok(Packet {
        bytes: bytes.get(..received.bytes).unwrap_or_default().to_vec(),
        descriptors,
    })
}
