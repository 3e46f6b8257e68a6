//! A network with a delay, for this process and its children: a TUN device in a network namespace.

use std::fmt::Display;
use std::time::Duration;

/// What is sent to this address comes back from it, later. So servers here are also there.
const FAR: &str = "10.9.0.2";

/// Why there is no such network here.
#[derive(Debug)]
pub(crate) struct Unavailable(pub(crate) String);

impl Unavailable {
    fn new(what: &str, why: impl Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}

/// The network that this process is in. It lasts as long as the process.
#[derive(Debug)]
pub(crate) struct Network(());

impl Network {
    /// The address of a port of this machine, with the delay in between.
    pub(crate) fn through(&self, port: u16) -> String {
        format!("{FAR}:{port}")
    }
}

#[cfg(not(target_os = "linux"))]
impl Network {
    pub(crate) fn enter(_: Duration) -> Result<Self, Unavailable> {
        Err(Unavailable::new("it needs a TUN device and a network namespace", "this is not Linux"))
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::env;
    use std::io::{Read, Write};
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Instant;

    use tun::{Configuration, Device};

    use super::*;

    /// The argument of a process that is in its namespace.
    const INSIDE: &str = "--inside";

    const NEAR: &str = "10.9.0.1";

    impl Network {
        /// Enters a network of its own. This starts the program again, as the same process.
        pub(crate) fn enter(round_trip: Duration) -> Result<Self, Unavailable> {
            if !env::args().any(|argument| argument == INSIDE) {
                return Err(start_again());
            }
            let mut configuration = Configuration::default();
            configuration.tun_name("far").address(NEAR).netmask("255.255.255.0").mtu(1500).up();
            let device = tun::create(&configuration);
            let device = device.map_err(|error| Unavailable::new("there is no TUN device", error))?;
            return_packets(device, round_trip / 2);
            Ok(Self(()))
        }
    }

    /// Starts this program in a network namespace with a loopback. Returns only if that is not possible.
    fn start_again() -> Unavailable {
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "wire"]);
            command
        };
        let what = "there is no network namespace, which needs root, unshare and ip";
        // After the exec nobody is left to explain a failure.
        match unshare().arg("true").output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => return Unavailable::new(what, String::from_utf8_lossy(&output.stderr).trim()),
            Err(error) => return Unavailable::new(what, format!("cannot run unshare: {error}")),
        }
        match env::current_exe() {
            Ok(program) => Unavailable::new(what, unshare().arg(program).arg(INSIDE).exec()),
            Err(error) => Unavailable::new(what, error),
        }
    }

    /// Sends each packet back after a delay, with source and destination swapped, which leaves all checksums right.
    fn return_packets(device: Device, delay: Duration) {
        let (mut reader, mut writer) = device.split();
        let (sender, packets) = mpsc::channel::<(Instant, Vec<u8>)>();
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            loop {
                let length = reader.read(&mut buffer).expect("the device stays");
                // The kernel also looks for neighbours with IPv6.
                if length < 20 || buffer[0] >> 4 != 4 {
                    continue;
                }
                let mut packet = buffer[..length].to_vec();
                packet[12..20].rotate_left(4);
                if sender.send((Instant::now() + delay, packet)).is_err() {
                    return;
                }
            }
        });
        thread::spawn(move || {
            for (due, packet) in packets {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                writer.write_all(&packet).expect("the device stays");
            }
        });
    }
}
