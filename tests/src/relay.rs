//! A way to a broker that can be cut: connections end, and new ones are refused until it is mended.
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// Listens on loopback and hands everything on to one address. Its threads end with the process.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    is_cut: bool,
    open: Vec<TcpStream>,
}

impl Relay {
    /// A relay to `target`, `host:port`.
    pub fn to(target: &str) -> std::io::Result<Relay> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::default()));
        let (shared, target) = (Arc::clone(&state), target.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A connection that cannot be served is dropped, as a cut one is.
                let _ = join(client, &target, &shared);
            }
        });
        Ok(Relay { address, state })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections; new ones end at once.
    pub fn cut(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_cut = true;
        for stream in state.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn mend(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_cut = false;
    }
}

fn join(client: TcpStream, target: &str, state: &Mutex<State>) -> std::io::Result<()> {
    let server = TcpStream::connect(target)?;
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    if state.is_cut {
        return Ok(());
    }
    for (from, to) in [(&client, &server), (&server, &client)] {
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        to.set_nodelay(true)?;
        state.open.push(to.try_clone()?);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                if to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}
