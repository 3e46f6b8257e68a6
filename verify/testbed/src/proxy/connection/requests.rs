//! Forwards frames from the client to the server.

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::super::history::{Direction, Ticket};
use super::super::shared::Step;
use super::Link;
use crate::frames::{Frame, FrameReader, FromClient, Kind};
use crate::relay::pump;

impl Link {
    /// Forwards the client's frames.
    pub(super) async fn requests(&self, mut reader: FrameReader<ReadHalf<'_>>, mut writer: WriteHalf<'_>) {
        let mut heals = self.shared.state().heals();
        let mut held: Vec<(Frame, i32, Ticket)> = Vec::new();
        let mut is_first = true;
        let forward = async |frame: Option<Frame>| {
            let Some(mut frame) = frame else {
                let now = self.shared.state().heals();
                if std::mem::replace(&mut heals, now) != now {
                    for (frame, xid, ticket) in held.drain(..) {
                        self.send_request(&mut writer, &frame, xid, ticket).await.goes_on()?;
                    }
                }
                return Ok(());
            };
            if is_first && self.shared.state().faults.new_sessions {
                frame.forget_session();
            }
            let read = if is_first { Some(FromClient::Aside(Kind::Connect)) } else { frame.sent_by_client() };
            is_first = false;
            let step = match read {
                Some(FromClient::Request(request)) => {
                    let xid = request.xid;
                    let (ticket, step) = self.shared.request_arrived(self.id, request);
                    match step {
                        Step::Forward if held.is_empty() => {
                            self.send_request(&mut writer, &frame, xid, ticket).await
                        }
                        Step::Forward | Step::Hold => {
                            held.push((frame, xid, ticket));
                            Step::Forward
                        }
                        Step::Swallow | Step::Cut => step,
                    }
                }
                Some(FromClient::Aside(kind)) => {
                    let is_refused = matches!(kind, Kind::SetWatches) && self.shared.state().faults.no_set_watches;
                    self.shared.aside(self.id, Direction::ToServer, kind);
                    if is_refused { Step::Cut } else { self.send(&mut writer, &frame).await }
                }
                None => Step::Cut,
            };
            step.goes_on()
        };
        if pump(async || reader.next().await, self.shared.orders(), forward).await.is_ok() {
            self.end(Direction::ToServer).await;
        }
    }

    async fn send_request(&self, writer: &mut WriteHalf<'_>, frame: &Frame, xid: i32, ticket: Ticket) -> Step {
        if !self.shared.may_forward_request(self.id, xid, ticket) {
            return Step::Swallow;
        }
        match writer.write_all(frame.wire()).await {
            Ok(()) => self.shared.request_forwarded(ticket),
            Err(_) => self.failed(),
        }
    }
}
