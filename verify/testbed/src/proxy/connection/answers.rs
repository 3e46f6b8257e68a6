//! Forwards frames from the server to the client.

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{self, Instant};

use super::super::history::{Direction, Ticket};
use super::super::shared::Step;
use super::Link;
use crate::frames::{Frame, FrameReader, FromServer, Kind};

/// A frame on its way to the client.
struct Parcel {
    frame: Frame,
    ticket: Option<Ticket>,
    due: Instant,
}

impl Link {
    /// Forwards the server's frames. Delayed frames wait in a queue, so that the proxy keeps reading
    /// from the server.
    pub(super) async fn answers(&self, reader: FrameReader<ReadHalf<'_>>, writer: WriteHalf<'_>) {
        let (queue, parcels) = mpsc::unbounded_channel();
        tokio::select! {
            () = self.deliver(parcels, writer) => (),
            () = async {
                self.collect(reader, queue).await;
                // Frames in the queue reach the client before its connection is closed.
                std::future::pending().await
            } => (),
        }
    }

    async fn collect(&self, mut reader: FrameReader<ReadHalf<'_>>, queue: mpsc::UnboundedSender<Parcel>) {
        let mut is_first = true;
        while let Ok(Some(frame)) = reader.next().await {
            let mut parcel = Parcel { frame, ticket: None, due: Instant::now() };
            if is_first {
                is_first = false;
                self.shared.aside(self.id, Direction::ToClient, Kind::Connect);
                if let Some(response) = parcel.frame.connect_response() {
                    self.shared.connected(response);
                }
            } else {
                match parcel.frame.sent_by_server() {
                    Some(FromServer::Answer { xid, zxid, err }) => {
                        let (ticket, delay) = self.shared.answer_arrived(self.id, xid, zxid, err);
                        if let Some(ticket) = ticket {
                            parcel.frame = self.shared.rewritten(ticket, parcel.frame);
                        }
                        parcel.ticket = ticket;
                        parcel.due += delay;
                    }
                    Some(FromServer::Aside(kind)) => {
                        let is_event = matches!(kind, Kind::Notification { .. });
                        self.shared.aside(self.id, Direction::ToClient, kind);
                        if is_event && self.shared.state().faults.no_events {
                            continue;
                        }
                    }
                    None => return,
                }
            }
            if queue.send(parcel).is_err() {
                return;
            }
        }
    }

    async fn deliver(&self, mut parcels: mpsc::UnboundedReceiver<Parcel>, mut writer: WriteHalf<'_>) {
        while let Some(Parcel { frame, ticket, due }) = parcels.recv().await {
            // A timer rounds up to milliseconds, even one that is due.
            if due > Instant::now() {
                time::sleep_until(due).await;
            }
            let (sent, number) = match ticket {
                None => (self.send(&mut writer, &frame).await, None),
                Some(ticket) => match self.shared.answer_is_due(self.id, ticket) {
                    (Step::Forward, number) => match writer.write_all(frame.wire()).await {
                        Ok(()) => (Step::Forward, number),
                        Err(_) => (self.failed(), None),
                    },
                    (step, _) => (step, None),
                },
            };
            if sent == Step::Cut || self.shared.answer_forwarded(number) == Step::Cut {
                return;
            }
        }
        self.end(Direction::ToClient).await;
    }
}
