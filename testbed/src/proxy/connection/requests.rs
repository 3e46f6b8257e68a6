//! From the client to the server.

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::super::history::{Direction, Ticket};
use super::super::shared::Step;
use super::Link;
use crate::frames::{Frame, FrameReader, FromClient, Kind};

impl Link {
    /// Forwards what the client sends.
    pub(super) async fn requests(&self, mut reader: FrameReader<ReadHalf<'_>>, mut writer: WriteHalf<'_>) {
        let mut orders = self.shared.orders();
        let mut heals = self.shared.state().heals();
        let mut held: Vec<(Frame, i32, Ticket)> = Vec::new();
        let mut is_first = true;
        loop {
            let frame = tokio::select! {
                frame = reader.next() => frame,
                _ = orders.changed() => {
                    let now = self.shared.state().heals();
                    if now != heals {
                        heals = now;
                        for (frame, xid, ticket) in held.drain(..) {
                            let step = self.send_request(&mut writer, &frame, xid, ticket).await;
                            if step == Step::Cut {
                                return;
                            }
                        }
                    }
                    continue;
                }
            };
            let Ok(Some(frame)) = frame else {
                return self.end(Direction::ToServer).await;
            };
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
                    self.shared.aside(self.id, Direction::ToServer, kind);
                    self.send(&mut writer, &frame).await
                }
                None => Step::Cut,
            };
            if step == Step::Cut {
                return;
            }
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
