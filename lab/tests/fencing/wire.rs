//! The token on its way to the store: the header of HTTP, and the metadata pair of gRPC.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::put;
use lab::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tonic::metadata::MetadataMap;
use zookeeper_recipes::FencingToken;

use crate::ID;
use crate::stores::{Sqlite, Store};
use crate::tokens::Tokens;

type Shared = Arc<Mutex<Box<dyn Store>>>;

/// As on the page.
fn token_of(values: &[&str]) -> Result<FencingToken, u16> {
    match values {
        [] => Err(428),
        [token] if token.bytes().all(|byte| byte.is_ascii_digit()) => token.parse().map_err(|_| 400),
        _ => Err(400),
    }
}

async fn set(State(store): State<Shared>, Path(id): Path<i64>, headers: HeaderMap, body: String) -> StatusCode {
    let values: Vec<_> =
        headers.get_all("fencing-token").iter().map(|value| value.to_str().unwrap_or("no text")).collect();
    let status = match (token_of(&values), body.parse()) {
        (Err(status), _) => status,
        (Ok(_), Err(_)) => 422,
        (Ok(token), Ok(balance)) => match store.lock().await.write(id, balance, token).await {
            Ok(true) => 200,
            Ok(false) => 412,
            Err(_) => 503,
        },
    };
    StatusCode::from_u16(status).expect("a status")
}

/// The status of a request that sets the balance, with these headers.
async fn ask(address: std::net::SocketAddr, headers: &str) -> Outcome<u16> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "PUT /accounts/{ID} HTTP/1.1\r\nHost: store\r\nConnection: close\r\nContent-Length: 1\r\n{headers}\r\n5"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split(' ').nth(1).ok_or("no status")?.parse()?)
}

#[tokio::test]
async fn service_before_the_store_answers_as_the_page_has_it() -> Outcome {
    let Tokens { first, second, wiped } = Tokens::of_holds().await?;
    let raised = wiped.token(1).await?;
    let database = Sqlite::start().await?;
    let store: Shared = Arc::new(Mutex::new(database.connect().await?));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let routes = Router::new().route("/accounts/{id}", put(set)).with_state(store);
    let server = tokio::spawn(async move { axum::serve(listener, routes).await });
    for (headers, status) in [
        (format!("Fencing-Token: {second}\r\n"), 200),
        (format!("fencing-token: {second}\r\n"), 200),
        (format!("Fencing-Token: {first}\r\n"), 412),
        (String::new(), 428),
        ("Fencing-Token: +7\r\n".to_owned(), 400),
        ("Fencing-Token: 0\r\n".to_owned(), 400),
        ("Fencing-Token: \r\n".to_owned(), 400),
        ("Fencing-Token: 3.6e16\r\n".to_owned(), 400),
        (format!("Fencing-Token: {second}\r\nFencing-Token: {raised}\r\n"), 400),
        (format!("Fencing-Token: {second}, {raised}\r\n"), 400),
        (format!("Fencing-Token: {raised}\r\n"), 200),
        (format!("Fencing-Token: {second}\r\n"), 412),
    ] {
        assert_eq!(ask(address, &headers).await?, status, "{headers}");
    }
    assert_eq!(database.connect().await?.row(ID).await?, Some((5, raised.get())));
    server.abort();
    Ok(())
}

#[test]
fn token_travels_as_a_metadata_pair() -> Outcome {
    for number in [1, (1 << 55) + 17, i64::MAX] {
        let token = FencingToken::try_from(number)?;
        let mut metadata = MetadataMap::new();
        metadata.append("fencing-token", token.to_string().parse()?);
        // As it is received.
        let metadata = MetadataMap::from_headers(metadata.into_headers());
        let values = metadata.get_all("fencing-token").iter().map(|value| value.to_str());
        assert_eq!(token_of(&values.collect::<Result<Vec<_>, _>>()?), Ok(token));
    }
    Ok(())
}
