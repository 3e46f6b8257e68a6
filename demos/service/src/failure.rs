//! Owns [`Failure`]: why a request was not served, and what that is in HTTP.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use rusqlite::ErrorCode::DatabaseBusy;
use zookeeper_recipes::{Error, Loss};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    NotNow(&'static str),
    #[error("an order's id has 1 to 64 characters, and no control characters")]
    BadId,
    #[error("there is no such order")]
    NotFound,
    #[error("another request is shipping this order")]
    Contended,
    #[error("{0} before the store confirmed; retry")]
    Lost(#[from] Loss),
    #[error("a newer holder of the lock has reached the store; retry")]
    Outdated,
    #[error("lock: {0}")]
    Lock(#[from] Error),
    #[error("store: {0}")]
    Store(#[from] rusqlite::Error),
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Self::BadId => StatusCode::UNPROCESSABLE_ENTITY,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Contended => StatusCode::LOCKED,
            Self::Lost(_) | Self::Outdated => StatusCode::CONFLICT,
            Self::Lock(Error::Closed) => StatusCode::SERVICE_UNAVAILABLE,
            // To be fixed by a person.
            Self::Lock(error) if !error.is_transient() => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Store(error) if error.sqlite_error_code() != Some(DatabaseBusy) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            _ => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let shown = match &self {
            // Hosts, paths and statements are nobody's business outside.
            Self::Lock(_) | Self::Store(_) => {
                tracing::warn!(error = &self as &dyn std::error::Error, "request failed");
                "cannot serve this now\n".to_owned()
            }
            _ => format!("{self}\n"),
        };
        (self.status(), shown).into_response()
    }
}
