//! A client of the servers that is a process of its own, behind proxies of its own.

use std::fmt;
use std::io::{self, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use super::demand::{Life, Network};
use crate::proxy::{Closing, Proxy};

const POLL: Duration = Duration::from_millis(10);

/// Makes the command that is the client, of this name, which is to connect to these hosts.
type Recipe = Box<dyn Fn(&str, &str) -> Command + Send>;

/// A process that uses the servers, each through a proxy, and that is started again after it was killed.
///
/// It is asked to end by closing its standard input. Dropping it kills it.
pub struct Client {
    name: String,
    incarnation: usize,
    recipe: Recipe,
    proxies: Vec<Proxy>,
    child: Option<Child>,
    crashes: Vec<String>,
}

impl Client {
    /// Starts a client. `recipe` makes the command from a name, new at every start, and the hosts to connect to.
    ///
    /// # Errors
    ///
    /// If there is no port or thread for a proxy, or the command cannot be run.
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

    /// The name of the process that runs, or ran last.
    pub fn name(&self) -> String {
        format!("{}.{}", self.name, self.incarnation)
    }

    /// How the process ended each time that nobody had killed it or asked it to end, in a sentence.
    pub fn crashes(&self) -> &[String] {
        &self.crashes
    }

    /// Writes a line to the standard input of the process.
    ///
    /// # Errors
    ///
    /// If it has ended, or was asked to.
    pub fn tell(&mut self, what: &str) -> io::Result<()> {
        let input = self.child.as_mut().and_then(|child| child.stdin.as_mut());
        input.map_or(Err(io::ErrorKind::BrokenPipe.into()), |input| writeln!(input, "{what}"))
    }

    /// Asks the process to end.
    pub fn ask_to_end(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.stdin.take());
        }
    }

    /// Waits until the process has ended, for `limit`; `None` if it has not.
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

    /// Whether it has a connection through which server `i` answers it.
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
                    // A refusing proxy has closed what was open; what comes now is to stay silent.
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

    /// Forgets what passed the proxies, and starts the process again if it has ended by itself.
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
            // It fails only if the process has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            // It fails only for a process that has ended, to which no signal matters.
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
