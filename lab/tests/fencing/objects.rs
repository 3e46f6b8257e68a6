//! The object of `docs/fencing.md`, in the store in memory of `object_store`, which knows the same conditions as S3.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::TryStreamExt;
use lab::Outcome;
use object_store::path::Path;
use object_store::{Error, ObjectStore, PutMode, UpdateVersion};
use zookeeper_recipes::FencingToken;

use crate::page::Page;
use crate::stores::{Database, Store};

#[derive(Debug)]
pub(crate) struct InMemory(Arc<object_store::memory::InMemory>);

impl InMemory {
    pub(crate) async fn start() -> Outcome<Arc<dyn Database>> {
        Ok(Arc::new(Self(Arc::default())))
    }
}

#[async_trait]
impl Database for InMemory {
    async fn connect(&self) -> Outcome<Box<dyn Store>> {
        Ok(Box::new(Objects(self.0.clone())))
    }
}

struct Objects(Arc<object_store::memory::InMemory>);

/// Writes `data`, or reads without it, if no larger token was there. Returns the data from before; `None` if it is refused.
async fn access(
    store: &dyn ObjectStore,
    path: &Path,
    token: FencingToken,
    data: Option<&[u8]>,
) -> Result<Option<Vec<u8>>, Error> {
    let token = &token.get().to_be_bytes()[..];
    loop {
        let (old, mode) = match store.get(path).await {
            Ok(found) => {
                let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
                (found.bytes().await?.to_vec(), PutMode::Update(UpdateVersion { e_tag, version }))
            }
            Err(Error::NotFound { .. }) => (Vec::new(), PutMode::Create),
            Err(error) => return Err(error),
        };
        // The token stands before the data, in eight bytes.
        let (largest, before) = old.split_at(old.len().min(8));
        if largest > token {
            return Ok(None);
        }
        let new = [token, data.unwrap_or(before)].concat();
        match store.put_opts(path, new.into(), mode.into()).await {
            Ok(_) => return Ok(Some(before.to_vec())),
            // Another client has written since we looked.
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

fn path(id: i64) -> Path {
    Path::from(format!("accounts/{id}"))
}

/// The balance in the data of an object; 0 if there was none.
fn balance(data: &[u8]) -> Outcome<i64> {
    if data.is_empty() { Ok(0) } else { Ok(i64::from_be_bytes(data.try_into()?)) }
}

impl Objects {
    /// The balance and the token of an object.
    async fn get(&self, path: &Path) -> Outcome<Option<(i64, i64)>> {
        match self.0.get(path).await {
            Ok(found) => {
                let content = found.bytes().await?;
                let (token, data) = content.split_at(8);
                Ok(Some((balance(data)?, i64::from_be_bytes(token.try_into()?))))
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[async_trait]
impl Store for Objects {
    async fn read(&mut self, id: i64, token: FencingToken) -> Outcome<Option<i64>> {
        let before = access(&*self.0, &path(id), token, None).await?;
        Ok(before.map(|data| balance(&data)).transpose()?)
    }

    async fn write(&mut self, id: i64, balance: i64, token: FencingToken) -> Outcome<bool> {
        Ok(access(&*self.0, &path(id), token, Some(&balance.to_be_bytes())).await?.is_some())
    }

    async fn epoch(&mut self) -> Outcome<u8> {
        let mut largest = 0;
        for object in self.0.list(None).try_collect::<Vec<_>>().await? {
            largest = largest.max(self.get(&object.location).await?.ok_or("it is gone")?.1);
        }
        Ok((largest >> 55).try_into()?)
    }

    async fn row(&mut self, id: i64) -> Outcome<Option<(i64, i64)>> {
        self.get(&path(id)).await
    }
}

#[test]
fn page_has_the_code_that_is_tested() {
    assert!(include_str!("objects.rs").contains(Page::below("Object stores")));
}
