//! Traces, as an exporter of OpenTelemetry gets them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry::trace::SpanId;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SpanData};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::subscriber::set_default;
use uuid::Uuid;
use zookeeper_recipes::{Config, Mutex, Servers, Session};

use crate::history::History;
use crate::http::{App, routes};
use crate::locks::Locks;
use crate::reader::Reader;
use crate::telemetry;

/// The only span of this name.
fn one<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    let named: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(named.len(), 1, "{name}: {spans:#?}");
    named[0]
}

fn attribute(span: &SpanData, key: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == key);
    found.unwrap_or_else(|| panic!("no {key}: {span:#?}")).value.to_string()
}

#[tokio::test]
async fn handler_lock_and_work_are_one_trace() {
    let hosts = std::env::var("ZK_HOSTS").expect("no ZK_HOSTS: run the suite as `zk-docker/run cargo test`");
    let servers = Servers::new(&hosts).with_session_timeout(Duration::from_secs(20));
    let session = Session::connect(servers).await.expect("connects");
    let connection = Config::from_env("ZK").expect("ZK_HOSTS");
    let path = format!("/watch-{}/orders/7", Uuid::new_v4().simple());
    let lock = Mutex::new(&session, &path).expect("a lock");
    let app = routes(Arc::new(App {
        locks: Locks::new("/", History::open(None, 10).expect("in memory")),
        reader: Reader::new(&session, &connection),
        work: Some(lock),
        metrics: PrometheusBuilder::new().build_recorder().handle(),
        closing: CancellationToken::new(),
    }));

    let exporter = InMemorySpanExporter::default();
    let tracer = telemetry::tracer(exporter.clone());
    let listens = set_default(telemetry::subscriber(Some(&tracer)));
    let request = Request::post("/work/1").header("x-status-page", "1").body(Body::empty()).expect("a request");
    assert_eq!(app.oneshot(request).await.expect("answered").status(), 200);
    drop(listens);
    session.close().await.expect("closed");

    let spans = exporter.get_finished_spans().expect("spans");
    let (handler, acquire) = (one(&spans, "POST /work"), one(&spans, "lock.acquire"));
    let (hold, work) = (one(&spans, "lock.hold"), one(&spans, "charge"));
    assert_eq!(handler.parent_span_id, SpanId::INVALID, "the handler began the trace");
    let id = |span: &SpanData| span.span_context.span_id();
    assert_eq!(acquire.parent_span_id, id(handler), "the lock is asked for in the handler");
    assert_eq!(hold.parent_span_id, id(handler), "the lock is held in the handler");
    assert_eq!(work.parent_span_id, id(hold), "work under the lock");
    let traces = [handler, acquire, hold, work].map(|span| span.span_context.trace_id());
    assert_eq!(traces, [traces[0]; 4], "one trace");
    assert_eq!((attribute(hold, "lock.path"), attribute(hold, "lock.ended")), (path, "released".to_owned()));
    assert_eq!(attribute(acquire, "lock.outcome"), "granted");
    assert_eq!(attribute(hold, "lock.token"), attribute(acquire, "lock.token"));
    assert!(work.start_time >= hold.start_time && work.end_time <= hold.end_time, "{hold:#?} {work:#?}");
}
