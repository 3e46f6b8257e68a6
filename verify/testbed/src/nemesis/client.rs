//! A client process, behind its own proxies.

use std::fmt;
use std::io::{self, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use super::demand::{Life, Network};
use crate::proxy::{Closing, Proxy};

const POLL: Duration = Duration::from_millis(10);

/// Makes the command of a client from its name and the hosts to connect to.
type Recipe = Box<dyn Fn(&str, &str) -> Command + Send>;

/// A process that uses each server through a proxy. It is restarted after it was killed.
///
/// Closing its standard input asks it to end. Dropping the client kills it.
pub struct Client {
    name: String,
    incarnation: usize,
    recipe: Recipe,
    proxies: Vec<Proxy>,
    child: Option<Child>,
    crashes: Vec<String>,
}

impl Client {
    /// Starts a client. `recipe` makes the command from the process's name, new at every start, and the hosts.
    ///
    /// # Errors
    ///
    /// If a proxy gets no port or thread, a file cannot be created, or the command cannot be run.
    pub async fn start(
        name: &str,
        servers: &[String],
        recipe: impl Fn(&str, &str) -> Command + Send + 'static,
    ) -> io::Result<Self> {
        let mut proxies = Vec::new();
        for server in servers {
            proxies.push(Proxy::start(server).await?);
        }
        let mut client = Self {
            name: name.to_owned(),
            incarnation: 0,
            recipe: Box::new(recipe),
            proxies,
            child: None,
            crashes: Vec::new(),
        };
        client.launch()?;
        Ok(client)
    }

    /// The name of the current or last process.
    pub fn name(&self) -> String {
        format!("{}.{}", self.name, self.incarnation)
    }

    /// A sentence for each time that the process ended without being killed or asked to end.
    pub fn crashes(&self) -> &[String] {
        &self.crashes
    }

    /// Writes a line to the standard input of the process.
    ///
    /// # Errors
    ///
    /// If it has ended, or was asked to end.
    pub fn send_line(&mut self, what: &str) -> io::Result<()> {
        let input = self.child.as_mut().and_then(|child| child.stdin.as_mut());
        input.map_or(Err(io::ErrorKind::BrokenPipe.into()), |input| writeln!(input, "{what}"))
    }

    /// Asks the process to end.
    pub fn ask_to_end(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.stdin.take());
        }
    }

    /// Waits up to `limit` until the process has ended; `None` if it has not.
    pub async fn ended(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Ok(Some(status)) = self.child.as_mut()?.try_wait() {
                return Some(status);
            }
            if Instant::now() > deadline {
                return None;
            }
            sleep(POLL).await;
        }
    }

    /// Whether server `i` answers it on some connection.
    pub(super) fn is_at(&self, server: usize) -> bool {
        self.proxies[server].connections() > 0
    }

    pub(super) fn turn(&mut self, from: Life, to: Life) -> io::Result<()> {
        match (from, to) {
            (Life::Running, Life::Paused) => self.signal(Signal::STOP),
            (Life::Paused, Life::Running) => self.signal(Signal::CONT),
            (Life::Running | Life::Paused, Life::Dead) => self.kill(),
            (Life::Dead, Life::Running) => self.launch()?,
            (Life::Dead, Life::Paused) => {
                self.launch()?;
                self.signal(Signal::STOP);
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn switch(&self, to: Network, closing: Closing) {
        for proxy in &self.proxies {
            proxy.close_by(closing);
            match to {
                Network::Open => proxy.heal(),
                Network::Refused => proxy.refuse(),
                Network::BlackHole => {
                    // A refusing proxy has closed its connections; new connections must stay silent.
                    proxy.heal();
                    proxy.black_hole();
                }
            }
        }
    }

    pub(super) fn cut(&self, closing: Closing) {
        for proxy in &self.proxies {
            proxy.close_by(closing);
            proxy.cut_now();
        }
    }

    /// Clears the records of the proxies, and restarts the process if it has ended by itself.
    pub(super) fn keep(&mut self) -> io::Result<()> {
        self.proxies.iter().for_each(Proxy::reset);
        let ended = self.child.as_mut().map(Child::try_wait);
        if let Some(Ok(Some(status))) = ended {
            self.crashes.push(format!("{} ended by itself: {status}", self.name()));
            self.launch()?;
        }
        Ok(())
    }

    fn launch(&mut self) -> io::Result<()> {
        self.incarnation += 1;
        let hosts: Vec<_> = self.proxies.iter().map(Proxy::hosts).collect();
        let mut command = (self.recipe)(&self.name(), &hosts.join(","));
        self.child = Some(command.stdin(Stdio::piped()).spawn()?);
        Ok(())
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It fails only if the process has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            // It fails only if the process has ended, and then the signal does not matter.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("name", &self.name()).field("child", &self.child).finish_non_exhaustive()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.kill();
    }
}
