//! Owns the write that fails unless a lock is held.

use futures_util::FutureExt;
use zookeeper_client::{CreateMode, MultiWriteResult, MultiWriter, Stat};

use crate::error::ZkError;
use crate::options::Options;
use crate::session::operations::{Refusal, transact};
use crate::session::request::Answer;
use crate::session::server_session::ServerSession;
use crate::session::trust::Request;

impl ServerSession {
    /// Sets the data of a node if all of `held` exist; creates it before that, if options are given for it. Returns its
    /// stat. The parts that are judged first are those of `held`.
    pub(crate) fn write_while_held(
        &self,
        held: &[String],
        path: &str,
        data: &[u8],
        new: Option<&Options>,
    ) -> Answer<Result<Stat, Refusal>> {
        let (held, path, data, new) = (held.to_vec(), path.to_owned(), data.to_vec(), new.cloned());
        self.send("write_while_held", Request::Write, move |client| {
            async move {
                let add = |writer: &mut MultiWriter<'_>| {
                    held.iter().try_for_each(|node| writer.add_check_version(node, -1))?;
                    if let Some(options) = &new {
                        writer.add_create(&path, &[], &CreateMode::Persistent.with_acls(options.acls()))?;
                    }
                    // Its result has a stat on all servers, which that of a create has not.
                    writer.add_set_data(&path, &data, None)
                };
                Ok(match transact(&client, add).await? {
                    Ok(results) => Ok(stat(results).ok_or_else(without_stat)?),
                    Err(refusal) => Err(refusal),
                })
            }
            .boxed()
        })
    }
}

fn stat(results: Vec<MultiWriteResult>) -> Option<Stat> {
    results.into_iter().find_map(|result| match result {
        MultiWriteResult::SetData { stat } => Some(stat),
        _ => None,
    })
}

fn without_stat() -> ZkError {
    ZkError::UnexpectedError("a transaction with a write has none".to_owned())
}
