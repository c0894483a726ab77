//! Messages with descriptors over a unix socket.
//!
//! A message is a header of 8 bytes, which carries the descriptors, and then JSON of the length
//! that the header has.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use crate::message::HandoverMessage;

/// Largest number of descriptors of a message. The kernel's limit is 253 (`SCM_MAX_FD`).
const DESCRIPTORS_MAX: usize = 250;
const HEADER: usize = 8;
/// Largest size of a message's JSON, bytes.
const JSON_BYTES_MAX: usize = 64 << 20;
/// Pause after the kernel has refused to send because too many descriptors are on their way.
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// The reason why a message was not sent or received.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other process has closed its end, or ended.
    #[error("the other process ended")]
    Ended,
    /// The operating system's error.
    #[error("the handover's socket failed")]
    Io(#[source] io::Error),
    /// The message is malformed, or of another version.
    #[error("a message of the handover cannot be read")]
    Malformed(#[source] serde_json::Error),
    /// The message is too long.
    #[error("a message of the handover has {0} bytes; accepted: {JSON_BYTES_MAX}")]
    TooLong(usize),
}

impl From<io::Error> for ChannelError {
    fn from(error: io::Error) -> ChannelError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => ChannelError::Ended,
            _ => ChannelError::Io(error),
        }
    }
}

/// One end of a handover.
#[derive(Debug)]
pub struct Channel(UnixStream);

impl Channel {
    /// The largest number of descriptors of one message.
    pub const DESCRIPTORS_MAX: usize = DESCRIPTORS_MAX;

    /// Two connected ends; the second one is for another process.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        Ok((Channel::over(ours.into())?, theirs.into()))
    }

    /// The end over a connected socket.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn over(socket: OwnedFd) -> io::Result<Channel> {
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Channel(UnixStream::from_std(socket)?))
    }

    /// The socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Sends a message with at most [`Channel::DESCRIPTORS_MAX`] descriptors.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub async fn send<F: AsFd>(
        &mut self,
        message: &HandoverMessage,
        descriptors: &[F],
    ) -> Result<(), ChannelError> {
        let json = serde_json::to_vec(message).map_err(ChannelError::Malformed)?;
        if json.len() > JSON_BYTES_MAX {
            return Err(ChannelError::TooLong(json.len()));
        }
        let length = json.len() as u64;
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        loop {
            let sent = self
                .0
                .async_io(Interest::WRITABLE, || {
                    send_header(self.0.as_fd(), length.to_le_bytes(), &descriptors)
                })
                .await;
            match sent {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::TOOMANYREFS) => {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                sent => break sent?,
            }
        }
        self.0.write_all(&json).await?;
        Ok(())
    }

    /// Sends a message without descriptors.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub async fn tell(&mut self, message: &HandoverMessage) -> Result<(), ChannelError> {
        self.send::<OwnedFd>(message, &[]).await
    }

    /// Receives a message with its descriptors, which programs that this process starts do not
    /// inherit.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub async fn receive(&mut self) -> Result<(HandoverMessage, Vec<OwnedFd>), ChannelError> {
        let mut descriptors = Vec::new();
        let mut header = [0; HEADER];
        let mut filled = 0;
        while filled < HEADER {
            let rest = &mut header[filled..];
            let received = self
                .0
                .async_io(Interest::READABLE, || {
                    receive_header(self.0.as_fd(), rest, &mut descriptors)
                })
                .await?;
            if received == 0 {
                return Err(ChannelError::Ended);
            }
            filled += received;
        }
        let length = usize::try_from(u64::from_le_bytes(header)).unwrap_or(usize::MAX);
        if length > JSON_BYTES_MAX {
            return Err(ChannelError::TooLong(length));
        }
        let mut json = vec![0; length];
        self.0.read_exact(&mut json).await?;
        let message = serde_json::from_slice(&json).map_err(ChannelError::Malformed)?;
        Ok((message, descriptors))
    }
}

fn send_header(
    socket: BorrowedFd<'_>,
    header: [u8; HEADER],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = sendmsg(socket, &[IoSlice::new(&header)], &mut control, SendFlags::NOSIGNAL)?;
    // The kernel splits no message of this size: it has room for all of it, or for none.
    if sent == HEADER { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn receive_header(
    socket: BorrowedFd<'_>,
    header: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(header)];
    let received = recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    use super::*;
    use crate::sockets::SocketName;

    #[tokio::test]
    async fn descriptors_arrive_with_their_message() {
        let (mut ours, theirs) = Channel::pair().unwrap();
        let mut theirs = Channel::over(theirs).unwrap();
        let path = std::env::temp_dir().join(format!("equipoise-handover-{}", std::process::id()));
        let files: Vec<File> = (0..DESCRIPTORS_MAX)
            .map(|number| {
                let mut file = File::options()
                    .create(true)
                    .truncate(true)
                    .read(true)
                    .write(true)
                    .open(&path)
                    .unwrap();
                std::fs::remove_file(&path).unwrap();
                write!(file, "{number}").unwrap();
                file
            })
            .collect();
        let name = HandoverMessage::Sockets(SocketName::Stream(([127, 0, 0, 1], 80).into()));
        for _ in 0..2 {
            ours.send(&name, &files).await.unwrap();
            ours.tell(&HandoverMessage::Prepared).await.unwrap();
            let (message, received) = theirs.receive().await.unwrap();
            assert_eq!((message, received.len()), (name.clone(), DESCRIPTORS_MAX));
            for (number, file) in received.into_iter().enumerate() {
                let (mut file, mut text) = (File::from(file), String::new());
                file.rewind().unwrap();
                file.read_to_string(&mut text).unwrap();
                assert_eq!(text, number.to_string());
            }
            let (message, received) = theirs.receive().await.unwrap();
            assert_eq!((message, received.len()), (HandoverMessage::Prepared, 0));
        }
        drop(ours);
        assert!(matches!(theirs.receive().await, Err(ChannelError::Ended)));
    }

    #[tokio::test]
    async fn a_message_of_another_kind_is_refused() {
        let (mut ours, theirs) = Channel::pair().unwrap();
        let mut theirs = Channel::over(theirs).unwrap();
        ours.0.write_all(&[2, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']).await.unwrap();
        assert!(matches!(theirs.receive().await, Err(ChannelError::Malformed(_))));
        ours.0.write_all(&[0xff; 8]).await.unwrap();
        assert!(matches!(theirs.receive().await, Err(ChannelError::TooLong(_))));
    }
}
