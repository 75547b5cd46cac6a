//! A loopback port that no other process gets.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use tokio::net::{TcpListener, TcpSocket};

/// The ports that this process has given out. No other test gets one of them: a store that looks for its server would find another
/// test's server there.
static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A port of 127.0.0.1, held by a socket that is bound but never listens.
///
/// The kernel does not assign such a port to a request for "any port", but a server that sets `SO_REUSEADDR` may listen on it. So
/// parallel tests never race for a port, and a server finds its port free when it restarts.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    address: SocketAddr,
    _reservation: TcpSocket,
}

impl ReservedPort {
    /// Reserves a free port that was not given out before.
    pub(crate) fn reserve() -> io::Result<Self> {
        // Held until the end, so that the kernel does not offer the same port again.
        let mut unfit = Vec::new();
        loop {
            let port = Self::reserve_number(0)?;
            let mut given = GIVEN.lock().expect("no panic holds it");
            if given.get_or_insert_default().insert(port.number()) {
                return Ok(port);
            }
            drop(given);
            unfit.push(port);
        }
    }

    /// Reserves a free port, and the one that is higher by `distance`.
    pub(crate) fn reserve_with(distance: u16) -> io::Result<(Self, Self)> {
        // Held until the end, so that the kernel does not offer the same port again.
        let mut unfit = Vec::new();
        loop {
            let port = Self::reserve()?;
            let higher = port
                .number()
                .checked_add(distance)
                .map(Self::reserve_number);
            match higher {
                Some(Ok(higher)) => return Ok((port, higher)),
                Some(Err(error)) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
                _ => unfit.push(port),
            }
        }
    }

    /// Reserves this port; 0 means any port. A reserved port counts as in use.
    fn reserve_number(number: u16) -> io::Result<Self> {
        let reservation = TcpSocket::new_v4()?;
        // Reusable sockets share a port until one of them listens, so this socket becomes reusable only after it has the port
        // alone.
        reservation.set_reuseaddr(false)?;
        reservation.bind((Ipv4Addr::LOCALHOST, number).into())?;
        reservation.set_reuseaddr(true)?;
        Ok(Self {
            address: reservation.local_addr()?,
            _reservation: reservation,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn number(&self) -> u16 {
        self.address.port()
    }

    /// Listens on the port in this process. Until [`close`](Self::close), a second call fails.
    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(self.address)?;
        socket.listen(1024)
    }

    /// Stops listening: on return the port refuses connections.
    ///
    /// Dropping the listener would not do: a child that another test is just starting has a copy of every socket until it runs its
    /// program, and a socket listens until its last copy is closed.
    pub(crate) fn close(listener: TcpListener) {
        let listener = listener.into_std().expect("a listener of this runtime");
        // The standard library shuts down streams only; to the kernel, a socket is a socket.
        let socket = TcpStream::from(OwnedFd::from(listener));
        socket
            .shutdown(Shutdown::Both)
            .expect("a listener can be shut down");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io;

    use tokio::net::TcpStream;

    use crate::support::ReservedPort;

    #[tokio::test]
    async fn pairs_of_ports_are_distinct_and_keep_their_distance() {
        let pairs = (0..100).map(|_| ReservedPort::reserve_with(10_000).unwrap());
        let pairs: Vec<_> = pairs.collect();
        let numbers = pairs
            .iter()
            .map(|(low, high)| [low.number(), high.number()]);
        assert!(numbers.clone().all(|[low, high]| high == low + 10_000));
        assert_eq!(numbers.flatten().collect::<BTreeSet<_>>().len(), 200);
    }

    #[tokio::test]
    async fn a_reserved_port_cannot_be_reserved_again() {
        let port = ReservedPort::reserve().unwrap();
        let again = ReservedPort::reserve_number(port.number()).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn reserved_ports_are_distinct_and_refuse_until_a_server_listens() {
        let ports: Vec<_> = (0..100).map(|_| ReservedPort::reserve().unwrap()).collect();
        let numbers: BTreeSet<_> = ports.iter().map(ReservedPort::number).collect();
        assert_eq!(numbers.len(), ports.len());

        let port = &ports[0];
        assert!(TcpStream::connect(port.address()).await.is_err());
        let listener = port.listen().unwrap();
        assert!(TcpStream::connect(port.address()).await.is_ok());
        assert!(port.listen().is_err(), "two listeners on one port");
        ReservedPort::close(listener);
        assert!(TcpStream::connect(port.address()).await.is_err());
        assert!(port.listen().is_ok());
    }
}
